package manifest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// manifests returns the files of testdata, and the same manifests in other forms.
func manifests(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{
		"findings": "kind: Job\nmetadata: {name: j}\n---\nkind: Pod\nmetadata: {name: p, annotations: {" + limitsName + ": 5}}\nspec: {containers: [{name: c, volumeMounts: [{name: x}]}]}\n",
		"syntax":   "kind: Pod\nspec: {containers: [{name: c}]}\n---\na: [\n",
		"merges":   "kind: Pod\nx: &a {k: v}\nmetadata: {name: p, annotations: {<<: *a, l: |\n  two\n  lines\n}}\nspec: {containers: [&c {name: c}, *c]}\n",
		"lists":    "kind: List\nitems:\n- {kind: Secret, metadata: {name: s}}\n- kind: Pod\n  spec:\n    containers:\n    - name: c\n",
	}
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out[file] = string(text)
	}
	return out
}

// moved returns a set as if it stood later in its file.
func moved(s Set, documents, lines int) Set {
	var out Set
	out.Add(s)
	move := func(p *Position) {
		if p.Document += documents; p.Line > 0 {
			p.Line += lines
		}
	}
	for i := range out.Pods {
		move(&out.Pods[i].Position)
		of := map[string]int{}
		for key, line := range out.Pods[i].Lines {
			of[key] = line + lines
		}
		out.Pods[i].Lines = of
	}
	for i := range out.Others {
		move(&out.Others[i].Position)
	}
	for i := range out.Findings {
		move(&out.Findings[i].Position)
	}
	return out
}

// withoutLines returns a set without findings whose text names a line.
func withoutLines(s Set) Set {
	kept := Set{Pods: s.Pods, Others: s.Others}
	for i := range s.Findings {
		if !strings.Contains(s.Findings[i].Text, "first in line") {
			kept.Findings = append(kept.Findings, s.Findings[i])
		}
	}
	return kept
}

// TestPlaces verifies that lines before a manifest move all of its positions, and nothing else. Line ends of
// DOS change nothing.
func TestPlaces(t *testing.T) {
	for name, text := range manifests(t) {
		set := mustRead(t, text)
		for prefix, lines := range map[string]int{"# a\n\n# b\n": 3, "---\n": 1, "%YAML 1.1\n---\n": 2, "---\n# a\n---\n": 3} {
			// Text that names a line is compared by its lines in TestAnnotationFindings.
			if d := cmp.Diff(withoutLines(moved(set, 0, lines)), withoutLines(mustRead(t, prefix+text)), cmpopts.EquateEmpty()); d != "" {
				t.Errorf("%s after %q: -want +got:\n%s", name, prefix, d)
			}
		}
		if d := cmp.Diff(set, mustRead(t, strings.ReplaceAll(text, "\n", "\r\n"))); d != "" {
			t.Errorf("%s with line ends of DOS: -want +got:\n%s", name, d)
		}
	}
}

// TestTogether verifies that two manifests in one file have the content of both, also after one that cannot be
// parsed.
func TestTogether(t *testing.T) {
	all := manifests(t)
	for a, first := range all {
		for b, second := range all {
			want, documents := mustRead(t, first), 0
			for _, p := range want.Pods {
				documents = max(documents, p.Document)
			}
			for _, o := range want.Others {
				documents = max(documents, o.Document)
			}
			for i := range want.Findings {
				documents = max(documents, want.Findings[i].Document)
			}
			want.Add(moved(mustRead(t, second), documents, strings.Count(first, "\n")+1))
			got := mustRead(t, first+"---\n"+second)
			if d := cmp.Diff(withoutLines(want), withoutLines(got), cmpopts.EquateEmpty()); d != "" {
				t.Errorf("%s and %s: -want +got:\n%s", a, b, d)
			}
		}
	}
}

// TestJSONOfYAML verifies that the pods of a manifest are the same in JSON, apart from their lines.
func TestJSONOfYAML(t *testing.T) {
	compared := 0
	for name, text := range manifests(t) {
		set := mustRead(t, text)
		if HasErrors(set.Findings) {
			continue // YAML to JSON has errors of its own
		}
		var inJSON strings.Builder
		for doc := range strings.SplitSeq("\n"+text, "\n---") {
			converted, err := yaml.YAMLToJSON([]byte(doc))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			inJSON.Write(append(converted, '\n'))
		}
		got := mustRead(t, inJSON.String())
		for _, s := range []*Set{&set, &got} {
			for i := range s.Pods {
				s.Pods[i].Position, s.Pods[i].Lines = Position{}, nil
			}
		}
		if d := cmp.Diff(set.Pods, got.Pods); d != "" || len(set.Pods) == 0 {
			t.Errorf("%s: -YAML +JSON:\n%s", name, d)
		}
		compared++
	}
	if compared < 2 {
		t.Errorf("only %d manifests compared", compared)
	}
}

// TestQuantities verifies that memory is the number of bytes that Kubernetes reads, however it is written.
func TestQuantities(t *testing.T) {
	for _, number := range []string{"0", "1", "1.5", "0.1", ".5", "5.", "+2", "007", "8589934592", "9223372036854775807", "1e3", "1E3", "2.5e+6", "1e-3", "99999999999"} {
		for _, suffix := range []string{"", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "u", "n"} {
			text := number + suffix
			quantity, err := resource.ParseQuantity(text)
			set := mustRead(t, `{"kind": "Pod", "spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "`+text+`"}}}]}}`)
			if err != nil {
				if len(set.Findings) != 1 || set.Pods[0].Containers[0].MemoryLimit != 0 {
					t.Errorf("%s: %v\n%s", text, err, render(&set))
				}
				continue
			}
			if got := set.Pods[0].Containers[0].MemoryLimit; got != uint64(quantity.Value()) || len(set.Findings) > 0 {
				t.Errorf("%s: %d, want %d\n%s", text, got, quantity.Value(), render(&set))
			}
		}
	}
}

// TestHostileText verifies that the findings of any manifest are lines of printable ASCII, and bounded.
func TestHostileText(t *testing.T) {
	for _, piece := range []string{"\x1b[2J", "a\nb\r", "\u202e\u2028", "\x00", `"'`, "%s%n", "{{ .x }}", strings.Repeat("k", 300), strings.Repeat("\U0001f648", 2000), strings.Repeat("\x1b", 5000), strings.Repeat(".", 3000)} {
		quotedPiece, err := json.Marshal(piece)
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range []string{
			`{"kind": ~, "metadata": {"annotations": {"KEY": "x"}}}`,
			`{"kind": "Rollout", "metadata": {"annotations": {"KEY": "x"}}, ~: {"spec": {"containers": [{"name": "c"}]}}}`,
			`{"kind": "Pod", ~: {"KEY": "x", "limits.blkio.nodersource.dev/x": ~}, "spec": {"containers": [{"name": ~, "volumeMounts": [{"name": ~}], "resources": {"limits": {"memory": ~, "cpu": ~}}}]}}`,
			`{"kind": "Pod", "metadata": {"name": ~, "annotations": {~: 5, ~: [~]}}, "spec": {"containers": {~: ~}, "volumes": [{"name": ~, ~: {}, "emptyDir": {}}]}}`,
			`{"kind": "StatefulSet", "metadata": {"name": ~, "namespace": ~}, "spec": {"ordinals": {"start": [~]}, "volumeClaimTemplates": [~], "template": {"metadata": {"labels": {~: 1, "x": {~: ~}}}, "spec": {"containers": [~]}}}}`,
			`{"kind": "List", "items": [~, {"kind": ~}, {"kind": "List", "items": ~}]}`,
			`{"kind": "Pod", "spec": ~}`, `~`, `{"kind": *~}`, `{"kind": ~`, `- &` + strings.Repeat("x", 2000) + ` ~` + "\n- *y" + strings.Repeat("z", 2000),
		} {
			text := strings.NewReplacer("~", string(quotedPiece), "KEY", limitsName).Replace(form)
			set := mustRead(t, text)
			for i := range set.Findings {
				f := &set.Findings[i]
				if len(f.Text) > 4<<10 || len(f.Field) > maxField || strings.ContainsFunc(f.Text, func(r rune) bool { return r < ' ' || r > '~' }) {
					t.Errorf("%.200q: %d bytes, a field of %d: %.300q", text, len(f.Text), len(f.Field), f.Text)
				}
			}
			if again := mustRead(t, text); len(set.Findings) == 0 && !strings.HasPrefix(form, `{"kind": ~,`) || cmp.Diff(set, again) != "" {
				t.Errorf("%.200q: %d findings, then %d", text, len(set.Findings), len(again.Findings))
			}
		}
	}
}

// TestManyLongPaths verifies that the paths of findings are cut, so that a long key does not stand in memory
// once for each.
func TestManyLongPaths(t *testing.T) {
	set := mustRead(t, "kind: Rollout\n? "+strings.Repeat("k", 1<<20)+"\n: {spec: {containers: ["+strings.Repeat("x, ", 500)+"]}}\n")
	total := 0
	for i := range set.Findings {
		total += len(set.Findings[i].Field) + len(set.Findings[i].Text)
	}
	if len(set.Findings) < 500 || total > 1000*len(set.Findings) {
		t.Errorf("%d bytes in %d findings", total, len(set.Findings))
	}
}

// TestCutPath verifies that a long path keeps its end, in valid UTF-8.
func TestCutPath(t *testing.T) {
	long := strings.Repeat("é", maxField)
	for in, want := range map[string]string{
		"":                            "",
		"spec.containers[0].name":     "spec.containers[0].name",
		strings.Repeat("a", maxField): strings.Repeat("a", maxField),
		strings.Repeat("a", maxField+1) + ".name": "..." + strings.Repeat("a", maxField-8) + ".name",
		long + ".x": "..." + strings.Repeat("é", (maxField-5)/2) + ".x",
	} {
		if got := cutPath(in); got != want || len(got) > maxField {
			t.Errorf("%.20q: %d bytes, %q", in, len(got), got)
		}
	}
	const deep = 20 // objects with long names around a template
	open, end := strings.Repeat(`{"`+strings.Repeat("k", 300)+`": `, deep), strings.Repeat("}", deep)
	set := mustRead(t, `{"kind": "Rollout", "metadata": {"annotations": {"`+limitsName+`": "x"}}, "x": `+open+`{"spec": {"containers": [1]}}`+end+"}")
	for i, want := range []string{"k.spec.containers[0]", "metadata.annotations"} {
		if i >= len(set.Findings) || !strings.HasSuffix(set.Findings[i].Field, want) || len(set.Findings[i].Field) > maxField || len(set.Findings[i].Text) > 1000 {
			t.Errorf("finding %d of %d is not at %s", i, len(set.Findings), want)
		}
	}
}

// TestStrings covers the text of objects, positions and findings. Each of their parts may be absent.
func TestStrings(t *testing.T) {
	for want, value := range map[string]fmt.Stringer{
		"": Object{}, "Pod": Object{Kind: "Pod"}, "Pod p": Object{Kind: "Pod", Name: "p"}, "Pod n/": Object{Kind: "Pod", Namespace: "n"}, "n/p": Object{Namespace: "n", Name: "p"},
		"f": Position{File: "f", Document: 3}, "f:7": Position{File: "f", Document: 3, Line: 7},
		"f:7: Pod p: a.b: text": &Finding{Position: Position{File: "f", Line: 7}, Object: Object{Kind: "Pod", Name: "p"}, Field: "a.b", Text: "text"},
		"f: text":               &Finding{Position: Position{File: "f"}, Text: "text"},
	} {
		if got := value.String(); got != want {
			t.Errorf("%+v: %q, want %q", value, got, want)
		}
	}
}
