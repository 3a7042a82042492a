package manifest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestForeign covers the annotations in objects of kinds that are not Kubernetes' own.
func TestForeign(t *testing.T) {
	const kind = "apiVersion: example.com/v1\nkind: Database\nmetadata: {name: d}\n"
	for _, tt := range []struct {
		findingTest
		pods []string // the path and the keys of each pod, without the domain
	}{
		{findingTest{name: "any field", in: kind + "spec: {a: [{pods: {" + limitsName + ": x, other: 5}}], b: {c: {" + limitsName + ": z}}}\n"}, []string{
			"spec.a[0].pods limits/containers", "spec.b.c limits/containers",
		}},
		{findingTest{name: "a project below k8s.io", in: "apiVersion: sparkoperator.k8s.io/v1\nkind: SparkApplication\nspec: {driver: {annotations: {" + limitsName + ": x}}}\n"}, []string{
			"spec.driver.annotations limits/containers",
		}},
		{findingTest{name: "no object", in: "podAnnotations: {" + limitsName + ": x}\n"}, []string{"podAnnotations limits/containers"}},
		{findingTest{name: "an object with spec.containers is no pod", in: kind + "spec: {containers: [{name: c}], podMetadata: {annotations: {" + limitsName + ": x}}}\n"}, []string{
			"spec.podMetadata.annotations limits/containers",
		}},
		{findingTest{name: "a field beside a pod template", in: kind + "spec: {a: {" + limitsName + ": x}, template: {spec: {containers: [{}]}}}\n"}, []string{
			"spec.template ", "spec.a limits/containers",
		}},
		{findingTest{name: "a wrong place in a pod", in: kind + "spec: {template: {x: {" + limitsName + ": x}, spec: {containers: [{}]}}}\n", want: []string{
			`warning in:4: Database d: spec.template.x: annotation "` + limitsName + `" has no effect here (write it in spec.template.metadata.annotations)`,
		}}, []string{"spec.template "}},
		{findingTest{name: "labels", in: kind + "spec: {podLabels: {" + limitsName + ": x}}\n", want: []string{
			`warning in:4: Database d: spec.podLabels: annotation "` + limitsName + `" has no effect here`,
		}}, nil},
		{findingTest{name: "a near miss", in: kind + "spec: {a: {limit.blkio.nodersource.dev/containers: x}}\n", want: []string{
			`error in:4: Database d: spec.a: annotation "limit.blkio.nodersource.dev/containers" has no effect (did you mean "` + limitsName + `"?)`,
		}}, []string{"spec.a limits/containers"}},
		{findingTest{name: "no string", in: kind + "spec: {a: {" + limitsName + ": 5}}\n", want: []string{
			`error in:4: Database d: spec.a: annotation "` + limitsName + `" is not a string (write it in quotes: "5")`,
		}}, nil},
		{findingTest{name: "placeholders", in: kind + "spec: {a: {" + limitsName + ": \"{{rate}}\"}, template: {metadata: {annotations: {" + limitsName + ": \"${RATE}\"}}, spec: {containers: []}}}\n", want: []string{
			`warning in:4: Database d: spec.template.metadata.annotations[` + limitsName + `]: the value has a placeholder, so it is not checked`,
			`warning in:4: Database d: spec.a[` + limitsName + `]: the value has a placeholder, so it is not checked`,
		}}, []string{"spec.template ", "spec.a "}},
		{findingTest{name: "patterns and schemas", in: kind + "spec: {a: {+(" + limitsName + "): x}, b: {blkio.noderesource.dev/rbps: 1Mi}}\n"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.run(t)
			set := mustRead(t, tt.in)
			var pods []string
			for i := range set.Pods {
				p := &set.Pods[i]
				if !p.IsPartial {
					t.Errorf("%+v", p)
				}
				keys := strings.Join(slices.Sorted(maps.Keys(p.Annotations)), ",")
				pods = append(pods, p.Template+" "+strings.ReplaceAll(keys, ".blkio.noderesource.dev", ""))
			}
			if d := cmp.Diff(tt.pods, pods); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// TestNoName verifies that a container without a name is an error of Kubernetes' own kinds, and has a name of its own.
func TestNoName(t *testing.T) {
	const containers = "spec: {template: {spec: {containers: [{}, {image: i}]}}}\n"
	for in, want := range map[string]int{
		"apiVersion: apps/v1\nkind: Deployment\n" + containers:             2,
		"apiVersion: serving.knative.dev/v1\nkind: Service\n" + containers: 0,
	} {
		set := mustRead(t, in)
		c := set.Pods[0].Containers
		if len(set.Findings) != want || len(c) != 2 || c[0].Name != NoName+", number 1)" || c[1].Name != NoName+", number 2)" {
			t.Errorf("%+v, %+v", set.Findings, c)
		}
	}
}

// TestHelmHints verifies that a template that begins with braces is not taken for JSON.
func TestHelmHints(t *testing.T) {
	for in, want := range map[string]string{
		"{{- if .Values.x }}\nkind: Pod\n{{- end }}\n":       "helm template",
		"kind: Service\nmetadata: {name: {{ .Values.n }}}\n": "metadata.name: not a string (a Helm template?",
		"kind: Pod\nmetadata:\n\tname: x\n":                  "(a tab? indent with blanks)",
	} {
		set := mustRead(t, in)
		if len(set.Findings) != 1 || !strings.Contains(set.Findings[0].String(), want) {
			t.Errorf("%q: %+v", in, set.Findings)
		}
	}
}
