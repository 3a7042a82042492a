package manifest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustRead(t *testing.T, in string) Set {
	t.Helper()
	set, err := Read(strings.NewReader(in), "in")
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// render writes all of a set as text.
func render(s *Set) string {
	var b strings.Builder
	for i := range s.Pods {
		p := &s.Pods[i]
		fmt.Fprintf(&b, "%s: %s", p.Position, p.Object)
		for _, part := range []struct {
			name  string
			value any
		}{{"template", p.Template}, {"class", p.RuntimeClass}, {"memory", p.MemoryLimit}} {
			if part.value != "" && part.value != uint64(0) {
				fmt.Fprintf(&b, " %s=%v", part.name, part.value)
			}
		}
		b.WriteByte('\n')
		for _, key := range slices.Sorted(maps.Keys(p.Annotations)) {
			fmt.Fprintf(&b, "  annotation %s: %q, line %d\n", key, p.Annotations[key], p.Lines[key])
		}
		for _, v := range p.Volumes {
			fmt.Fprintf(&b, "  volume %s\n", strings.ReplaceAll(fmt.Sprintf("%+v", v), "Name:", ""))
		}
		for _, c := range p.Containers {
			fmt.Fprintf(&b, "  container %s %s privileged=%v memory=%d mounts=%+v devices=%+v\n", c.Name, c.Role, c.Privileged, c.MemoryLimit, c.Mounts, c.Devices)
		}
	}
	for i := range s.Others {
		fmt.Fprintf(&b, "%s: other %q\n", s.Others[i].Position, s.Others[i].Object)
	}
	for i := range s.Findings {
		fmt.Fprintf(&b, "%s %s\n", s.Findings[i].Severity, &s.Findings[i])
	}
	return b.String()
}

// TestGolden compares each file of testdata with the file *.want. UPDATE_WANT=1 writes it.
func TestGolden(t *testing.T) {
	inYAML, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	inJSON, err := filepath.Glob("testdata/*.json")
	if err != nil || len(inYAML) == 0 || len(inJSON) == 0 {
		t.Fatal(inYAML, inJSON, err)
	}
	for _, file := range append(inYAML, inJSON...) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			set, err := Read(f, filepath.Base(file))
			if err != nil {
				t.Fatal(err)
			}
			got := render(&set)
			if os.Getenv("UPDATE_WANT") != "" {
				if err := os.WriteFile(file+".want", []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file + ".want")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// podTemplate is a pod template with an annotation.
const podTemplate = `{metadata: {annotations: {k: v}}, spec: {containers: [{name: c}]}}`

// workload is an object of a kind with a pod template.
func workload(kind string) string {
	return "kind: " + kind + "\nmetadata: {name: x, namespace: ns}\nspec: {template: " + podTemplate + "}\n"
}

// contentTest is a manifest without findings: its pods, as OBJECT @TEMPLATE k=VALUE CONTAINER..., and
// its other objects.
type contentTest struct {
	name, in string
	want     []string
	others   []string
}

func (tt contentTest) run(t *testing.T) {
	set := mustRead(t, tt.in)
	if len(set.Findings) > 0 {
		t.Errorf("findings: %v", render(&set))
	}
	var got, others []string
	for _, p := range set.Pods {
		line := p.Object.String() + " @" + p.Template + " k=" + p.Annotations["k"]
		for _, c := range p.Containers {
			line += " " + c.Name
		}
		got = append(got, line)
	}
	for _, o := range set.Others {
		others = append(others, o.Object.String())
	}
	if d := cmp.Diff(tt.want, got); d != "" {
		t.Errorf("pods (-want +got):\n%s", d)
	}
	if d := cmp.Diff(tt.others, others); d != "" {
		t.Errorf("others (-want +got):\n%s", d)
	}
}

// TestKinds covers where the pods of each kind are.
func TestKinds(t *testing.T) {
	for _, tt := range []contentTest{
		{name: "Pod", in: "kind: Pod\nmetadata: {name: p, namespace: ns, annotations: {k: v}}\nspec: {containers: [{name: c}]}\n", want: []string{"Pod ns/p @ k=v c"}},
		{name: "Pod of a controller", in: "kind: Pod\nmetadata: {generateName: p-}\nspec: {containers: [{name: c}]}\n", want: []string{"Pod default/p- @ k= c"}},
		{name: "fields of a later version", in: "kind: Pod\nnew: [1]\nmetadata: {name: p, new: 1}\nspec: {new: 1, containers: [{name: c, new: {}}]}\n", want: []string{"Pod default/p @ k= c"}},
		{name: "Deployment", in: workload("Deployment"), want: []string{"Deployment ns/x @spec.template k=v c"}},
		{name: "StatefulSet", in: workload("StatefulSet"), want: []string{"StatefulSet ns/x @spec.template k=v c"}},
		{name: "DaemonSet", in: workload("DaemonSet"), want: []string{"DaemonSet ns/x @spec.template k=v c"}},
		{name: "ReplicaSet", in: workload("ReplicaSet"), want: []string{"ReplicaSet ns/x @spec.template k=v c"}},
		{name: "ReplicationController", in: workload("ReplicationController"), want: []string{"ReplicationController ns/x @spec.template k=v c"}},
		{name: "Job", in: workload("Job"), want: []string{"Job ns/x @spec.template k=v c"}},
		{name: "CronJob", in: "kind: CronJob\nmetadata: {name: x}\nspec: {jobTemplate: {spec: {template: " + podTemplate + "}}}\n", want: []string{"CronJob default/x @spec.jobTemplate.spec.template k=v c"}},
		{name: "PodTemplate", in: "kind: PodTemplate\nmetadata: {name: x}\ntemplate: " + podTemplate + "\n", want: []string{"PodTemplate default/x @template k=v c"}},
		{name: "a kind of others", in: "apiVersion: example.com/v1\n" + workload("Job"), want: []string{"Job ns/x @spec.template k=v c"}},
		{
			name: "List", others: []string{"Secret s"},
			in:   "kind: List\nitems:\n- {kind: Secret, metadata: {name: s}}\n- {kind: StatefulSet, metadata: {name: s}, spec: {template: " + podTemplate + "}}\n- null\n",
			want: []string{"StatefulSet default/s @spec.template k=v c"},
		},
		{
			name: "a typed list, whose items have no kind",
			in:   "apiVersion: apps/v1\nkind: DeploymentList\nitems:\n- {metadata: {name: a}, spec: {template: " + podTemplate + "}}\n",
			want: []string{"Deployment default/a @spec.template k=v c"},
		},
		{name: "a list of lists", in: "kind: List\nitems: [{kind: List, items: [{kind: Pod, spec: {containers: [{name: c}]}}]}]\n", want: []string{"Pod default/ @ k= c"}},
		{name: "no list", in: "kind: AllowList\nitems: [a]\n", others: []string{"AllowList"}},
		{
			name: "lists as deep as they are read", others: []string{"List"},
			in:   "kind: List\nitems: [" + strings.Repeat("{kind: List, items: [", maxLists-1) + "{kind: Pod, spec: {containers: [{name: c}]}}, {kind: List, items: [{kind: Secret}]}" + strings.Repeat("]}", maxLists-1) + "]\n",
			want: []string{"Pod default/ @ k= c"},
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestDocuments covers how several objects are written, in YAML and JSON.
func TestDocuments(t *testing.T) {
	for _, tt := range []contentTest{
		{name: "nothing"},
		{name: "comments and marks", in: "# x\n---\n---\n# y\n%YAML 1.1\n...\n"},
		{name: "null", in: "null\n---\n~\n"},
		{
			name: "several, and others", others: []string{"Service", "ConfigMap"},
			in:   "kind: Service\n---\n" + workload("Job") + "--- # a comment\nkind: ConfigMap\ndata: {spec: x}\n...\n---\n" + workload("DaemonSet"),
			want: []string{"Job ns/x @spec.template k=v c", "DaemonSet ns/x @spec.template k=v c"},
		},
		{
			name: "concatenated JSON",
			in:   `{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}} {"kind": "Secret"}` + "\n",
			want: []string{"Pod default/a @ k= c"}, others: []string{"Secret"},
		},
		{name: "YAML in braces", in: "{kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}\n", want: []string{"Pod default/a @ k= c"}},
		{name: "a byte order mark", in: "\ufeff" + `{"kind": "Secret"}`, others: []string{"Secret"}},
		{name: "line ends of DOS", in: "kind: Secret\r\n---\r\nkind: ConfigMap\r\n", others: []string{"Secret", "ConfigMap"}},
		{
			name: "merges and aliases",
			in: "kind: Pod\nmetadata: {name: &n p, annotations: &a {k: v}}\nspec: {containers: [{name: c}]}\n---\nx: &t {name: q, annotations: {k: w}}\n" +
				"kind: Pod\nmetadata: {<<: *t, name: r}\nspec: {containers: [&c {name: c}, {<<: [*c], name: d}]}\n",
			want: []string{"Pod default/p @ k=v c", "Pod default/r @ k=w c d"},
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestJSONIsYAML reads the same objects in both forms.
func TestJSONIsYAML(t *testing.T) {
	inJSON := mustRead(t, `{"kind": "Pod", "metadata": {"name": "p", "annotations": {"a": "x\/y", "b": "\u00fc"}},
"spec": {"containers": [{"name": "c", "securityContext": {"privileged": true}, "resources": {"limits": {"memory": 1048576}}}],
"volumes": [{"name": "v", "emptyDir": {}, "hostPath": null}]}}`)
	inYAML := mustRead(t, `kind: Pod
metadata: {name: p, annotations: {a: x/y, b: ü}}
spec:
  containers: [{name: c, securityContext: {privileged: yes}, resources: {limits: {memory: 1Mi}}}]
  volumes: [{name: v, emptyDir: {}, hostPath: }]
`)
	for _, s := range []*Set{&inJSON, &inYAML} {
		if len(s.Pods) != 1 || len(s.Findings) > 0 {
			t.Fatal(render(s))
		}
		s.Pods[0].Lines = nil
	}
	if d := cmp.Diff(inYAML, inJSON); d != "" {
		t.Errorf("-YAML +JSON:\n%s", d)
	}
}

func TestHasErrors(t *testing.T) {
	var s Set
	s.Add(Set{Findings: []Finding{{Severity: Warning}}})
	if HasErrors(s.Findings) {
		t.Error("a warning is an error")
	}
	s.Add(Set{Findings: []Finding{{Severity: Error}}, Pods: make([]Pod, 1), Others: make([]Other, 1)})
	if !HasErrors(s.Findings) || len(s.Pods)+len(s.Others)+len(s.Findings) != 4 {
		t.Errorf("%+v", s)
	}
}
