package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadManifests(t *testing.T) {
	const template = `{metadata: {annotations: {k: v}}, spec: {containers: [{name: c}]}}`
	tests := []struct {
		name, in string
		want     []string
		others   []string
		err      string
	}{
		{name: "nothing"},
		{name: "comments and separators", in: "# x\n---\n---\n# y\n"},
		{name: "pod", in: "kind: Pod\nmetadata: {name: p, namespace: ns, annotations: {k: v}}\nspec: {containers: [{name: c}]}\n", want: []string{"Pod ns/p k=v c"}},
		{name: "pod of a controller", in: "kind: Pod\nmetadata: {generateName: p-, annotations: {k: v}}\nspec: {containers: [{name: c}]}\n", want: []string{"Pod default/p- k=v c"}},
		{name: "JSON", in: `{"kind": "Pod", "metadata": {"name": "p", "annotations": {"k": "v"}}, "spec": {"containers": [{"name": "c"}]}}`, want: []string{"Pod default/p k=v c"}},
		{name: "fields of a later version", in: "kind: Pod\nmetadata: {name: p, annotations: {k: v}}\nspec: {new: 1, containers: [{name: c, new: {}}]}\n", want: []string{"Pod default/p k=v c"}},
		{name: "Deployment", in: "kind: Deployment\nmetadata: {name: d, annotations: {k: other}}\nspec: {template: " + template + "}\n", want: []string{"Deployment default/d k=v c"}},
		{name: "CronJob", in: "kind: CronJob\nmetadata: {name: d}\nspec: {jobTemplate: {spec: {template: " + template + "}}}\n", want: []string{"CronJob default/d k=v c"}},
		{
			name: "several, and others", others: []string{"Service", "ConfigMap"},
			in:   "kind: Service\n---\nkind: Job\nmetadata: {name: a}\nspec: {template: " + template + "}\n---\nkind: ConfigMap\n---\nkind: DaemonSet\nmetadata: {name: b}\nspec: {template: " + template + "}\n",
			want: []string{"Job default/a k=v c", "DaemonSet default/b k=v c"},
		},
		{
			name: "list", others: []string{"Secret"},
			in:   "kind: List\nitems:\n- {kind: Secret}\n- {kind: StatefulSet, metadata: {name: s}, spec: {template: " + template + "}}\n",
			want: []string{"StatefulSet default/s k=v c"},
		},
		{name: "no kind", in: "kind: Pod\n---\na: 1\n", err: "document 2: no kind"},
		{name: "no YAML", in: "a: [\n", err: "document 1: "},
		{name: "no object", in: "- a\n", err: "document 1: "},
		{name: "a template that is not there", in: "kind: Job\nmetadata: {name: j}\n", err: "Job j has no pod template"},
		{name: "a bad item", in: "kind: List\nitems: [{kind: Pod, spec: 1}]\n", err: "document 1: item 1: decode Pod"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pods, others, err := readManifests(strings.NewReader(tt.in))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, want an error with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range pods {
				got = append(got, m.Kind+" "+m.Namespace+"/"+m.Name+" k="+m.Annotations["k"]+" "+m.Spec.Containers[0].Name)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("pods (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.others, others); d != "" {
				t.Errorf("others (-want +got):\n%s", d)
			}
		})
	}
}

func FuzzReadManifests(f *testing.F) {
	f.Add("kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n---\nkind: List\nitems: [{kind: Job}]\n")
	f.Fuzz(func(_ *testing.T, in string) {
		// No panic, whatever the input; what it means is tested above.
		_, _, _ = readManifests(strings.NewReader(in))
	})
}
