package expect

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

const nodePolicy = `apiVersion: blkio.noderesource.dev/v1alpha1
kind: NodePolicy
writeback: {dirtyGuard: 64Mi}
classes:
  bronze: {limits: ["* wbps=20Mi wiops=500"], weight: 50}
  silver: {limits: ["* wbps=40Mi", "/data wbps=80Mi"]}
rules:
- {name: system, match: {namespaces: [kube-system]}, annotations: ignore}
- {name: closed, match: {namespaces: [closed]}, annotations: reject, class: bronze}
- {name: staged, match: {namespaces: [staged]}, class: silver, mode: observe}
- name: batch
  match: {namespaces: ["batch-*"]}
  class: bronze
  bounds: {max: ["* wbps=100Mi"]}
`

func testChecker(t testing.TB) *check.Checker {
	t.Helper()
	p, err := policy.ParseFile([]byte(nodePolicy))
	if err != nil {
		t.Fatal(err)
	}
	return &check.Checker{Policy: p}
}

// volumePod has two containers with a volume at /data, and one without.
func volumePod(namespace string, annotations map[string]string) *manifest.Pod {
	data := []manifest.Mount{{Volume: "data", Path: "/data"}}
	return &manifest.Pod{
		Object: manifest.Object{Kind: "Pod", Namespace: namespace, Name: "p"}, Annotations: annotations,
		Volumes: []manifest.Volume{{Name: "data", Source: manifest.PersistentVolumeClaim, Claim: "claim"}},
		Containers: []manifest.Container{
			{Name: "a", Role: manifest.Main, Mounts: data}, {Name: "b", Role: manifest.Sidecar, Mounts: data}, {Name: "c", Role: manifest.Main},
		},
	}
}

// pods returns pods with various decisions.
func pods() []*manifest.Pod {
	const limits, weight, class = "limits.blkio.noderesource.dev/", "weight.blkio.noderesource.dev/", "class.blkio.noderesource.dev/"
	var out []*manifest.Pod
	for _, namespace := range []string{"web", "kube-system", "closed", "staged", "batch-1"} {
		for _, annotations := range []map[string]string{
			nil,
			{limits + "containers": "* rbps=5Mi; rootfs rbps=3Mi"},
			{limits + "container.a": "/data wbps=50Mi; rootfs wbps=max", weight + "containers": "30"},
			{limits + "containers": "* wbps=200Mi", limits + "pod-total": "/data wbps=90Mi"},
			{limits + "container.c": "/data wbps=50Mi", limits + "pod-total": "/nope wbps=90Mi"},
			{class + "containers": "silver", class + "container.a": "bronze", weight + "pod-total": "70"},
			{class + "container.b": "none", weight + "container.a": "/data 40; * 10"},
		} {
			out = append(out, volumePod(namespace, annotations))
		}
	}
	return out
}

// written returns the case that expects the actual decisions, with all fields that a file can have.
func written(t *testing.T, checker *check.Checker, m *manifest.Pod, r *check.Result) string {
	t.Helper()
	rule := r.Rule
	if rule == "" {
		rule = None
	}
	text := fmt.Sprintf("- name: p\n  expect:\n    rule: %s\n    mode: %s\n    annotationsIgnored: %v\n    containers:\n", rule, r.Decided.Mode, r.Decided.IgnoresAnnotations)
	for i := range r.Decided.Containers {
		d := &r.Decided.Containers[i]
		class, refused := d.Class, "false"
		if class == "" {
			class = None
		}
		if d.Refused != "" {
			refused = "'" + strings.ReplaceAll(d.Refused, "'", "''") + "'"
		}
		text += fmt.Sprintf("      %s:\n        class: %s\n        refused: %s\n", d.Container, class, refused) + values(t, checker, m, d, "        ")
	}
	return text + "    podTotal:\n      weights: []\n" + values(t, checker, m, &r.Decided.Total, "      ")
}

// values returns the values of a decision as a file has them: for each target, those on its disk.
func values(t *testing.T, checker *check.Checker, m *manifest.Pod, d *check.Decision, indent string) string {
	t.Helper()
	text := ""
	if w, ok := d.Settings.Weight(); ok {
		text += fmt.Sprintf("%sweight: %d\n", indent, w.Amount)
	}
	text += indent + "limits:\n"
	for _, target := range []string{"rootfs", "/data", "@data"} {
		for k := range blkio.NumLimits {
			disks, err := checker.Select(t.Context(), m, d.Container, "limits", limitEntry(target, k))
			if err != nil || len(disks) == 0 {
				continue
			}
			if len(disks) != 1 {
				t.Fatalf("%s is on %q", target, disks)
			}
			s := settingOf(d, k, disks[0])
			if s.Amount == blkio.Unset {
				text += fmt.Sprintf("%s- {target: %q, %s: max}\n", indent, target, k)
				continue
			}
			text += fmt.Sprintf("%s- {target: %q, %s: %s, from: %q}\n", indent, target, k, annotation.FormatAmount(k, s.Amount), s.Source)
		}
	}
	return text
}

// TestDecisionsPass verifies that a case that expects the actual decisions passes, for each pod. Each change of
// an expected value is a difference.
func TestDecisionsPass(t *testing.T) {
	checker, changed := testChecker(t), 0
	for _, m := range pods() {
		r := checker.Pod(t.Context(), m)
		text := written(t, checker, m, &r)
		if found := compare(t, checker, m, text); len(found) > 0 {
			t.Errorf("%s %q: %q\n%s", m.Namespace, m.Annotations, found, text)
		}
		if m.Namespace != "batch-1" {
			continue // all of them take seconds
		}
		for _, line := range slices.Compact(slices.Sorted(strings.SplitSeq(text, "\n"))) {
			for old, other := range map[string]string{
				"class: ": "class: gold-", "refused: false": "refused: true", "refused: '": "refused: 'not ", "bps: max": "bps: 7Mi", "Mi, from": "Ki, from", `from: "`: `from: "no `,
				"mode: ": "mode: ", "rule: ": "rule: no-", "Ignored: true": "Ignored: false", "Ignored: false": "Ignored: true", "weight: ": "weight: 1",
			} {
				if old == other || !strings.Contains(line, old) {
					continue
				}
				changed++
				if found := compare(t, checker, m, strings.ReplaceAll(text, line, strings.Replace(line, old, other, 1))); len(found) == 0 {
					t.Errorf("%s %q: no difference with %q for %q in %s", m.Namespace, m.Annotations, other, old, line)
				}
			}
		}
	}
	if changed < 100 {
		t.Errorf("only %d values changed", changed)
	}
}

// compare compares a pod with one case, without the head of the file.
func compare(t *testing.T, checker *check.Checker, m *manifest.Pod, text string) (out []string) {
	t.Helper()
	cases, err := Parse([]byte(fileHead + text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	found, notes := cases[0].Compare(t.Context(), checker, m)
	for _, d := range found {
		out = append(out, d.String())
	}
	return append(out, notes...)
}

// TestDifferences verifies the texts of differences.
func TestDifferences(t *testing.T) {
	const limits = "limits.blkio.noderesource.dev/"
	for expect, want := range map[string][]string{
		`{rule: none}`: {`rule: got batch, want none`},
		`{containers: {d: {}, a: {class: bronze}}}`: {`containers: got no such container, want d`},
		`{eachContainer: {class: silver}}`: {
			`container a: class: got bronze, want silver`, `container b: class: got bronze, want silver`, `container c: class: got bronze, want silver`,
		},
		`{containers: {a: {limits: [{target: "*", wbps: 20Mi}]}}}`:  {`container a: limits * wbps: got 50Mi on disk of claim claim from limits/container.a #1, want 20Mi`},
		`{containers: {a: {limits: [{target: /data, wiops: 9}]}}}`:  {`container a: limits /data wiops: got 500 on disk of claim claim from rule batch, class bronze, want 9`},
		`{containers: {c: {limits: [{target: /data, wbps: max}]}}}`: {`container c: limits /data wbps: got no disk: "/data" is on no mount of the container, want max`},
		`{containers: {a: {weights: [{target: rootfs, weight: none}]}}}`: {
			`container a: weight rootfs: got 50 on disk of the writable layers from rule batch, class bronze, want none`,
		},
		`{containers: {a: {limits: [{target: rootfs, rbps: max, from: class bronze}]}}}`: {
			`container a: limits rootfs rbps from: got none on disk of the writable layers, want class bronze`,
		},
		`{podTotal: {limits: []}}`: {
			`podTotal limits: got wbps=60Mi on disk of the writable layers from backstop: the sum of the containers' limits, want none`,
			`podTotal limits: got wiops=1500 on disk of the writable layers from backstop: the sum of the containers' limits, want none`,
			`podTotal limits: got wbps=70Mi on disk of claim claim from backstop: the sum of the containers' limits, want none`,
			`podTotal limits: got wiops=1k on disk of claim claim from backstop: the sum of the containers' limits, want none`,
		},
	} {
		m := volumePod("batch-1", map[string]string{limits + "container.a": "/data wbps=50Mi"})
		got := compare(t, testChecker(t), m, "- {name: a, expect: "+expect+"}")
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: -want +got:\n%s", expect, d)
		}
	}
}

// TestNotes verifies that beside differences, the errors of the pod are shown once. An annotation for a
// container that the pod does not have is a difference.
func TestNotes(t *testing.T) {
	const limits = "limits.blkio.noderesource.dev/"
	const unknown, floor = `unknown container "d" in the annotations (the pod has a, b, c)`, `nri-blkio: limits.blkio.noderesource.dev/container.a: entry 1 "rootfs wbps=1": wbps=1 is under this node's floor (write at least 64Ki)`
	const absent = "annotations: got " + unknown + ", want containers of the pod"
	m := volumePod("web", map[string]string{limits + "container.a": "rootfs wbps=1", limits + "container.d": "rootfs wbps=1Mi"})
	m.Position, m.Lines = manifest.Position{File: "p.yaml"}, map[string]int{limits + "container.a": 7}
	for expect, want := range map[string][]string{
		`{rule: none}`:                        {absent, "p.yaml:7: " + floor},
		`{rule: batch}`:                       {"rule: got none, want batch", absent, "p.yaml:7: " + floor},
		`{containers: {a: {refused: false}}}`: {"container a: refused: got " + floor + ", want false", absent},
	} {
		if d := cmp.Diff(want, compare(t, testChecker(t), m, "- {name: a, expect: "+expect+"}")); d != "" {
			t.Errorf("%s: -want +got:\n%s", expect, d)
		}
	}
	c := comparison{out: []Difference{{Field: "weight", Got: "1"}}}
	if got := c.hidden([]string{"an error about 1"}); len(got) != 1 {
		t.Errorf("a value hides an error: %q", got)
	}
}

// TestRefusedValues verifies that a rejected container has no values. A case that does not expect the rejection fails,
// whether it expects values or `limits: []`.
func TestRefusedValues(t *testing.T) {
	m := volumePod("batch-1", map[string]string{"limits.blkio.noderesource.dev/container.a": "* wbps=200Mi"})
	const refused = "container a: refused: got nri-blkio: limits.blkio.noderesource.dev/container.a: entry 1 \"* wbps=200Mi\": " +
		"wbps=200Mi is above the bound (write at most 100Mi, bounds.max of rule batch), want false"
	for expect, want := range map[string][]string{
		`{containers: {a: {limits: []}}}`:                                                               {refused},
		`{eachContainer: {limits: [{target: rootfs, rbps: max}]}}`:                                      {refused},
		`{containers: {a: {weight: none}}}`:                                                             {refused},
		`{containers: {a: {limits: [], refused: true}}}`:                                                nil,
		`{eachContainer: {limits: [{target: rootfs, rbps: max}]}, containers: {a: {refused: "above"}}}`: nil,
		`{eachContainer: {class: bronze}, containers: {b: {weight: 50}}}`:                               nil,
	} {
		if d := cmp.Diff(want, compare(t, testChecker(t), m, "- {name: a, expect: "+expect+"}")); d != "" {
			t.Errorf("%s: -want +got:\n%s", expect, d)
		}
	}
}

// TestWeightOfStar verifies that the target * selects the disks of a weight too.
func TestWeightOfStar(t *testing.T) {
	m := volumePod("web", map[string]string{"weight.blkio.noderesource.dev/container.a": "/data 40; * 30"})
	for expect, want := range map[string][]string{
		`{containers: {a: {weights: [{target: "*", weight: 30}]}}}`: {
			`container a: weight *: got 40 on disk of claim claim from weight/container.a #1, want 30`,
		},
		`{containers: {c: {weights: [{target: "*", weight: none}]}}}`:              nil,
		`{containers: {a: {weights: [{target: rootfs, weight: 30}], weight: 30}}}`: nil,
	} {
		if d := cmp.Diff(want, compare(t, testChecker(t), m, "- {name: a, expect: "+expect+"}")); d != "" {
			t.Errorf("%s: -want +got:\n%s", expect, d)
		}
	}
}
