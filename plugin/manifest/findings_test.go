package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// findingTest is a manifest and its findings: SEVERITY FILE:LINE: OBJECT: FIELD: TEXT.
type findingTest struct {
	name, in string
	want     []string
}

func (tt findingTest) run(t *testing.T) {
	set := mustRead(t, tt.in)
	var got []string
	for i := range set.Findings {
		got = append(got, string(set.Findings[i].Severity)+" "+set.Findings[i].String())
	}
	if d := cmp.Diff(tt.want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

const (
	podText    = "kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n"
	limitsName = "limits.blkio.noderesource.dev/containers"
)

// deploymentText is a Deployment with more fields in its metadata, and annotations of its pods.
func deploymentText(metadata, annotations string) string {
	return "kind: Deployment\nmetadata: {name: d" + metadata + "}\nspec:\n  template:\n    metadata: {annotations: {" + annotations + "}}\n" +
		"    spec: {containers: [{name: c}]}\n"
}

func TestFindings(t *testing.T) {
	for _, tt := range []findingTest{
		{name: "no kind", in: podText + "---\na: 1\n", want: []string{"error in:7: no kind: not a Kubernetes object"}},
		{name: "no object", in: "- a\n", want: []string{"error in:1: not a Kubernetes object"}},
		{name: "a kind that is no string", in: "kind: 1\n", want: []string{
			`error in:1: kind: not a string (write it in quotes: "1")`, "error in:1: no kind: not a Kubernetes object",
		}},
		{name: "an item that is no object", in: "kind: List\nitems:\n- x\n", want: []string{"error in:3: not a Kubernetes object"}},
		{name: "no template", in: "---\nkind: Job\nmetadata: {name: j}\n", want: []string{"error in:2: Job j: spec.template: no pod template"}},
		{name: "a template of the wrong type", in: "kind: Job\nmetadata: {name: j}\nspec: {template: [1]}\n", want: []string{"error in:3: Job j: spec.template: not a pod template"}},
		{name: "no containers", in: "kind: Pod\nmetadata: {name: p}\n", want: []string{"error in:1: Pod p: no containers"}},
		{name: "a list of the wrong type", in: "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}], volumes: {}}\n", want: []string{"error in:3: Pod p: spec.volumes: not a list"}},
		{name: "an object of the wrong type", in: "kind: Pod\nmetadata: [p]\nspec: {containers: [c]}\n", want: []string{
			"error in:2: Pod: metadata: not an object with fields", "error in:3: Pod: spec.containers[0]: not an object with fields",
		}},
		{name: "a list of the wrong type", in: "kind: List\nitems: x\n---\nkind: PodList\nitems: {a: b}\n", want: []string{
			"error in:2: List: items: not a list", "error in:5: PodList: items: not a list",
		}},
		{name: "init containers alone", in: "kind: Pod\nmetadata: {name: p}\nspec: {initContainers: [{name: i}], ephemeralContainers: [{name: e}]}\n", want: []string{
			"error in:1: Pod p: no containers",
		}},
		{name: "a volume's name that is no string", in: podText + "    volumeMounts: [{name: 5, mountPath: /d}]\n", want: []string{
			`error in:6: Pod p: spec.containers[0].volumeMounts[0].name: not a string (write it in quotes: "5")`,
		}},
		{name: "annotations of the wrong type", in: "kind: Pod\nmetadata: {annotations: [" + limitsName + ", x, " + limitsName + ", z]}\nspec: {containers: [{name: c}]}\n", want: []string{
			"error in:2: Pod: metadata.annotations: not an object with fields",
		}},
		{name: "a boolean of the wrong type", in: podText + "    securityContext: {privileged: \"true\"}\n", want: []string{"error in:6: Pod p: spec.containers[0].securityContext.privileged: not true or false"}},
		{name: "memory", in: podText + "    resources: {limits: {memory: 1GB}}\n", want: []string{`error in:6: Pod p: spec.containers[0].resources.limits.memory: not a quantity: "1GB"`}},
		{name: "less than no memory", in: podText + "    resources: {limits: {memory: -1}}\n", want: []string{`error in:6: Pod p: spec.containers[0].resources.limits.memory: not a quantity: "-1"`}},
		{name: "memory that takes hours to compute", in: podText + "    resources: {limits: {memory: 1e2147483647}}\n", want: []string{`error in:6: Pod p: spec.containers[0].resources.limits.memory: not a quantity: "1e2147483647"`}},
		{name: "memory as a number", in: podText + "    resources: {limits: {memory: 1e9}}\n"},
		{name: "a volume that is not there", in: podText + "    volumeMounts: [{name: dta, mountPath: /d}]\n  volumes: [{name: data, emptyDir: {}}]\n", want: []string{
			`error in:6: Pod p: spec.containers[0].volumeMounts[0].name: container "c": unknown volume "dta" (did you mean "data"?)`,
		}},
		{name: "a device that is not there", in: podText + "    volumeDevices: [{name: x, devicePath: /d}]\n", want: []string{
			`error in:6: Pod p: spec.containers[0].volumeDevices[0].name: container "c": unknown volume device "x"`,
		}},
		{name: "a volume with two sources", in: podText + "  volumes: [{name: v, emptyDir: {}, hostPath: {path: /x}}]\n", want: []string{
			`error in:6: Pod p: spec.volumes[0].hostPath: a second source of volume "v", which has "emptyDir"`,
		}},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestMisplaced covers annotations of this program where they have no effect.
func TestMisplaced(t *testing.T) {
	for _, tt := range []findingTest{
		{name: "a template and its pod", in: deploymentText(", annotations: {"+limitsName+": x}", limitsName+": z")},
		{name: "the workload's own metadata", in: deploymentText(", annotations: {"+limitsName+": x}", ""), want: []string{
			`error in:2: Deployment d: metadata.annotations: annotation "` + limitsName + `" has no effect here (write it in spec.template.metadata.annotations)`,
		}},
		{name: "a label", in: deploymentText(", labels: {"+limitsName+": x}", ""), want: []string{
			`error in:2: Deployment d: metadata.labels: annotation "` + limitsName + `" has no effect here (write it in spec.template.metadata.annotations)`,
		}},
		{name: "the job's metadata", in: "kind: CronJob\nmetadata: {name: night}\nspec:\n  jobTemplate:\n    metadata: {annotations: {" + limitsName + ": x}}\n    spec: {template: {spec: {containers: [{name: c}]}}}\n", want: []string{
			`error in:5: CronJob night: spec.jobTemplate.metadata.annotations: annotation "` + limitsName + `" has no effect here (write it in spec.jobTemplate.spec.template.metadata.annotations)`,
		}},
		{name: "outside of annotations", in: "kind: Pod\nmetadata: {name: p, " + limitsName + ": x}\nspec: {containers: [{name: c}]}\n", want: []string{
			`error in:2: Pod p: metadata: annotation "` + limitsName + `" has no effect here (write it in metadata.annotations)`,
		}},
		{name: "a container", in: podText + "    annotations: {" + limitsName + ": x}\n", want: []string{
			`error in:6: Pod p: spec.containers[0].annotations: annotation "` + limitsName + `" has no effect here (write it in metadata.annotations)`,
		}},
		{name: "a kind without pods", in: "kind: Namespace\nmetadata: {name: ns, annotations: {" + limitsName + ": x}}\n", want: []string{
			`warning in:2: Namespace ns: metadata.annotations: annotation "` + limitsName + `" has no effect on a Namespace, only on pods`,
		}},
		{name: "a kind without pods that is not plain", in: "kind: \"A\\nB\\e[2J\"\nmetadata: {annotations: {" + limitsName + ": x}}\n", want: []string{
			"warning in:2: A\nB\x1b[2J: metadata.annotations: annotation \"" + limitsName + "\" has no effect on a \"A\\nB\\x1b[2J\", only on pods",
		}},
		{name: "a path that is not plain", in: "kind: R\nmetadata: {annotations: {" + limitsName + ": x}}\n\"a\\nb\": {spec: {containers: [{name: c}]}}\n", want: []string{
			`warning in:2: R: metadata.annotations: annotation "` + limitsName + `" has no effect here (write it in a\nb.metadata.annotations)`,
		}},
		{name: "a kind without pods, other annotations", in: "kind: ConfigMap\nmetadata: {name: ns, annotations: {a: x}, labels: [" + limitsName + ", x]}\n"},
		{name: "a kind without pods, a misspelled domain", in: "kind: Namespace\nmetadata: {name: ns, labels: {limits.blkio.nodersource.dev/containers: x}}\n", want: []string{
			`warning in:2: Namespace ns: metadata.labels: annotation "limits.blkio.nodersource.dev/containers" has no effect on a Namespace, only on pods`,
		}},
		{name: "fields with the names of the API server's", in: podText + "    status: {" + limitsName + ": x}\n  managedFields: {" + limitsName + ": x}\n", want: []string{
			`error in:6: Pod p: spec.containers[0].status: annotation "` + limitsName + `" has no effect here (write it in metadata.annotations)`,
			`error in:7: Pod p: spec.managedFields: annotation "` + limitsName + `" has no effect here (write it in metadata.annotations)`,
		}},
		{name: "an unknown kind with two pods", in: "kind: Rollout\nmetadata: {name: r, annotations: {" + limitsName + ": x}}\nspec: {a: {spec: {containers: [{name: c}]}}, b: {spec: {containers: [{name: c}]}}}\n", want: []string{
			`warning in:2: Rollout r: metadata.annotations: annotation "` + limitsName + `" has no effect here (write it in spec.a.metadata.annotations)`,
		}},
		{name: "an unknown kind with pods", in: "kind: Rollout\nmetadata: {name: r, annotations: {" + limitsName + ": x}}\nspec: {template: {spec: {containers: [{name: c}]}}}\n", want: []string{
			`warning in:2: Rollout r: metadata.annotations: annotation "` + limitsName + `" has no effect here (write it in spec.template.metadata.annotations)`,
		}},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestAnnotationFindings covers annotations of pods with wrong names and values.
func TestAnnotationFindings(t *testing.T) {
	for _, tt := range []findingTest{
		{name: "a misspelled domain", in: deploymentText("", "limits.blkio.nodersource.dev/containers: x"), want: []string{
			`error in:5: Deployment d: spec.template.metadata.annotations: annotation "limits.blkio.nodersource.dev/containers" has no effect (did you mean "` + limitsName + `"?)`,
		}},
		{name: "a misspelled domain, merged", in: "kind: Rollout\nx: &a {limits.blkio.nodersource.dev/containers: x}\nspec: {template: {metadata: {annotations: {<<: *a}}, spec: {containers: [{name: c}]}}}\n", want: []string{
			`error in:2: Rollout: x: annotation "limits.blkio.nodersource.dev/containers" has no effect (did you mean "` + limitsName + `"?)`,
		}},
		{name: "a misspelled domain that is the value of a key", in: "kind: Rollout\nx: &a {limits.blkio.nodersource.dev/containers: x}\nspec: {template: {metadata: {annotations: {y: *a}}, spec: {containers: [{name: c}]}}}\n", want: []string{
			`error in:2: Rollout: spec.template.metadata.annotations: annotation "y" is not a string`,
			`error in:2: Rollout: x: annotation "limits.blkio.nodersource.dev/containers" has no effect (did you mean "` + limitsName + `"?)`,
		}},
		{name: "the API server's fields", in: "kind: Pod\nmetadata: {name: p, managedFields: [{fieldsV1: {f:metadata: {f:annotations: {f:" + limitsName + ": {}}}}}]}\n" +
			"spec: {containers: [{name: c}]}\nstatus: {" + limitsName + ": x}\n"},
		{name: "annotations of others", in: deploymentText(", annotations: {a: b, required-plugins.noderesource.dev: x}", "memory-qos.noderesource.dev/c: z")},
		{name: "a number", in: deploymentText("", "weight.blkio.noderesource.dev/containers: 50"), want: []string{
			`error in:5: Deployment d: spec.template.metadata.annotations: annotation "weight.blkio.noderesource.dev/containers" is not a string (write it in quotes: "50")`,
		}},
		{name: "a boolean of YAML 1.1", in: deploymentText("", "k: yes"), want: []string{
			`error in:5: Deployment d: spec.template.metadata.annotations: annotation "k" is not a string (write it in quotes: "yes")`,
		}},
		{name: "a name that is a boolean of YAML 1.1", in: "kind: Secret\nmetadata: {name: n}\n", want: []string{`error in:2: Secret: metadata.name: not a string (write it in quotes: "n")`}},
		{name: "an object", in: deploymentText("", limitsName+": {}"), want: []string{
			`error in:5: Deployment d: spec.template.metadata.annotations: annotation "` + limitsName + `" is not a string`,
		}},
		{name: "twice", in: "kind: Pod\nmetadata:\n  annotations:\n    " + limitsName + ": x\n    " + limitsName + ": z\nspec: {containers: [{name: c}]}\n", want: []string{
			`error in:5: Pod: metadata.annotations: annotation "` + limitsName + `" is written twice, first in line 4`,
		}},
		{name: "another one twice", in: "kind: Pod\nmetadata:\n  annotations:\n    a: x\n    a: z\nspec: {containers: [{name: c}]}\n"},
		{name: "annotations by an alias", in: "kind: Deployment\nmetadata: {annotations: &a {" + limitsName + ": x}}\nspec: {template: {metadata: {annotations: *a}, spec: {containers: [{name: c}]}}}\n"},
		{name: "annotations by a merge", in: "kind: Pod\nx: &a {" + limitsName + ": x}\nmetadata: {annotations: {<<: *a, b: c}}\nspec: {containers: [{name: c}]}\n"},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestSyntax verifies that a document that cannot be parsed is reported with its line, and that the other documents are
// still checked.
func TestSyntax(t *testing.T) {
	tests := []struct {
		name, in, want string // want begins the finding
		pods           int
	}{
		{"the second document", "kind: Secret\n---\na: [\n---\n" + "kind: Pod\nspec: {containers: [{name: c}]}\n", "in:3: cannot be parsed: ", 1},
		{"after an end mark", "kind: Pod\nspec: {containers: [{name: c}]}\n...\n--- a\nb: [\n", "in:5: cannot be parsed: ", 1},
		{"indentation", "kind: Pod\n metadata: x\n", "in:2: cannot be parsed: mapping values are not allowed", 0},
		{"a Helm template", "kind: Pod\nmetadata:\n  name: {{ .Values.name }}\n  {{- if x }}\n", "in:4: cannot be parsed: ", 0},
		{"JSON", "{\n\"kind\": \"Pod\",\n\"spec\": [}\n", "in:3: cannot be parsed: ", 0},
		{"JSON that ends", "{\"kind\": \"Pod\",\n\"spec\": [1,", "in:2: cannot be parsed: unexpected EOF", 0},
		{"JSON after JSON", `{"kind": "Pod", "spec": {"containers": [{"name": "c"}]}}` + "\n]", "in:2: cannot be parsed: ", 1},
		{"deep JSON", strings.Repeat(`{"a":`, 2000), "in:1: cannot be parsed: more than 1000 levels", 0},
		{"deep YAML", strings.Repeat("[", 20000), "in: cannot be parsed: exceeded max depth", 0},
		{"no text", "\x00\x01", "in: cannot be parsed: control characters are not allowed", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set := mustRead(t, tt.in)
			if len(set.Findings) != 1 || !strings.HasPrefix(set.Findings[0].String(), tt.want) || len(set.Pods) != tt.pods {
				t.Errorf("%d pods, want %d, and %q\n%s", len(set.Pods), tt.pods, tt.want, render(&set))
			}
			if tt.name == "a Helm template" && !strings.Contains(set.Findings[0].Text, "helm template") {
				t.Errorf("no hint: %s", set.Findings[0].Text)
			}
		})
	}
}

// TestAliases reads documents whose aliases stand for more than can be read.
func TestAliases(t *testing.T) {
	const limit = "aliases repeat more content than is read"
	thousand := strings.TrimSuffix(strings.Repeat("*a,", 3000), ",")
	tests := map[string]string{
		"lists of lists": "kind: Pod\nx: &a {name: c, volumeMounts: &m [" + strings.Repeat("{name: v, mountPath: /},", 3000) + "]}\nspec: {volumes: [{name: v}], containers: [" + thousand + "]}\n",
		"merges": "kind: Pod\na: &a {k: 1}\nb: &b {<<: [" + strings.Repeat("*a,", 100) + "]}\nc: &c {<<: [" + strings.Repeat("*b,", 100) + "]}\n" +
			"d: &d {<<: [" + strings.Repeat("*c,", 100) + "]}\ne: &e {<<: [" + strings.Repeat("*d,", 100) + "]}\nspec: *e\n",
	}
	for name, in := range tests {
		set := mustRead(t, in)
		if last := set.Findings[len(set.Findings)-1]; !strings.Contains(render(&set), limit) {
			t.Errorf("%s: %v", name, &last)
		}
	}
	// One that contains itself ends.
	set := mustRead(t, "kind: Pod\nmetadata: &m {annotations: *m, <<: *m}\nspec: &s {containers: [{name: c, volumeMounts: *s}], <<: [*s, *s]}\n")
	if len(set.Pods) != 1 {
		t.Error(render(&set))
	}
}
