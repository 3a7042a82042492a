package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNamespaces verifies that the pods of all manifests have the labels of their namespaces, if some manifest has these.
func TestNamespaces(t *testing.T) {
	read := func(text string) Set {
		set, err := Read(strings.NewReader(text), "in")
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	const spec = "spec: {containers: [{name: c}]}\n"
	var set Set
	set.Add(read("kind: Pod\nmetadata: {name: a, namespace: team}\n" + spec + "---\nkind: Pod\nmetadata: {name: b, namespace: other}\n" + spec +
		"---\nkind: Pod\nmetadata: {name: c}\n" + spec + "---\nkind: Namespace\napiVersion: example.com/v1\nmetadata: {name: other, labels: {plan: gold}}\n"))
	set.Add(read("kind: Namespace\napiVersion: v1\nmetadata: {name: team, labels: {plan: gold, kubernetes.io/metadata.name: wrong}}\n---\nkind: Namespace\nmetadata: {name: default}\n"))
	set.Link()
	got := map[string]map[string]string{}
	for _, p := range set.Pods {
		got[p.Name] = p.NamespaceLabels
	}
	want := map[string]map[string]string{"a": {"plan": "gold", NameLabel: "team"}, "b": nil, "c": {NameLabel: "default"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if kinds := set.OtherKinds(); len(kinds) != 1 || len(set.Others) != 1 { // the one of another group
		t.Errorf("%v are left out", set.Others)
	}
	wrong := read("kind: Namespace\nmetadata: {name: a, labels: [b]}\n")
	if len(wrong.Findings) != 1 || wrong.Findings[0].Field != "metadata.labels" {
		t.Errorf("labels in a list: %v", wrong.Findings)
	}
}
