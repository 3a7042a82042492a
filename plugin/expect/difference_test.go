package expect

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
)

const limitsKey, weightKey, classKey = "limits.blkio.noderesource.dev/", "weight.blkio.noderesource.dev/", "class.blkio.noderesource.dev/"

// TestDifferencesOfKinds verifies that for each field that a case may have, a decision that is not the expected
// one.
func TestDifferencesOfKinds(t *testing.T) {
	for _, tt := range []struct {
		namespace string
		requests  map[string]string
		expect    string
		want      []string
	}{
		{"staged", nil, `{rule: none, mode: enforce}`, []string{"rule: got staged, want none", "mode: got observe, want enforce"}},
		{"web", nil, `{rule: batch, mode: observe, annotationsIgnored: true}`, []string{"rule: got none, want batch", "mode: got enforce, want observe", "annotationsIgnored: got false, want true"}},
		{"kube-system", map[string]string{limitsKey + "containers": "* wbps=1Mi"}, `{annotationsIgnored: false, containers: {a: {limits: [{target: "*", wbps: 1Mi}]}}}`, []string{
			"annotationsIgnored: got true, want false", "container a: limits * wbps: got max on disk of the writable layers, want 1Mi", "container a: limits * wbps: got max on disk of claim claim, want 1Mi",
		}},
		{"batch-1", nil, `{containers: {b: {}, aa: {class: bronze}, "": {}}}`, []string{"containers: got no such container, want ", "containers: got no such container, want aa"}},
		{"web", map[string]string{classKey + "container.a": "bronze"}, `{eachContainer: {class: none}}`, []string{"container a: class: got bronze, want none"}},
		{"web", nil, `{podTotal: {limits: [{target: /nothing, wbps: max}], weights: [{target: "@nothing", weight: none}], weight: 7}}`, []string{
			"podTotal limits /nothing wbps: got no disk: no container has it, want max",
			"podTotal weight: got none, want 7",
			`podTotal weight @nothing: got no disk: no container has it, want none`,
		}},
		{"web", map[string]string{weightKey + "pod-total": "70", weightKey + "container.a": "/data 40; * 10"}, `{podTotal: {weight: 7}, containers: {a: {weight: 40, weights: [{target: /data, weight: 10}, {target: rootfs, weight: none}]}}}`, []string{
			"container a: weight: got 10 from weight/container.a #2, want 40",
			"container a: weight /data: got 40 on disk of claim claim from weight/container.a #1, want 10",
			"container a: weight rootfs: got 10 on disk of the writable layers from weight/container.a #2, want none",
			"podTotal weight: got 70 from weight/pod-total, want 7",
		}},
		{"web", map[string]string{limitsKey + "containers": "/data wbps=5Mi riops=max; rootfs wbps=6Mi"}, `{containers: {a: {limits: [{target: "*", wbps: 5Mi, from: limits/container}, {target: /data, riops: max, from: none}, {target: rootfs, riops: 2k, wiops: max, from: none}]}}}`, []string{
			"container a: limits * wbps: got 6Mi on disk of the writable layers from limits/containers #2, want 5Mi",
			"container a: limits * wbps from: got limits/containers #1 on disk of claim claim, want limits/container",
			"container a: limits /data riops from: got limits/containers #1 on disk of claim claim, want none",
			"container a: limits rootfs riops: got max on disk of the writable layers, want 2k",
		}},
		{"web", map[string]string{weightKey + "container.c": "5"}, `{eachContainer: {weights: [{target: rootfs, weight: none, from: none}]}, containers: {c: {weights: [{target: rootfs, weight: 5, from: class}]}}}`, []string{
			"container c: weight rootfs: got 5 on disk of the writable layers from weight/container.c, want none",
			"container c: weight rootfs from: got weight/container.c on disk of the writable layers, want class",
		}},
	} {
		got := compare(t, testChecker(t), volumePod(tt.namespace, tt.requests), "- {name: a, expect: "+tt.expect+"}")
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.expect, d)
		}
	}
}

// TestRefused verifies differences in whether a container is rejected, and why.
func TestRefused(t *testing.T) {
	yes, no, because := &refusal{expected: true}, &refusal{}, &refusal{true, "a \"cause\"\n"}
	for _, tt := range []struct {
		want *refusal
		got  string
		diff string
	}{
		{nil, "", ""},
		{nil, "x", ""},
		{no, "", ""},
		{no, "x", "refused: got x, want false"},
		{yes, "", "refused: got false, want true"},
		{yes, "x", ""},
		{because, "", `refused: got false, want "a \"cause\"\n"`},
		{because, "another", `refused: got another, want "a \"cause\"\n"`},
		{because, "this is a \"cause\"\nof errors", ""},
	} {
		var c comparison
		c.refused(tt.want, tt.got)
		got := ""
		for _, d := range c.out {
			got += d.String()
		}
		if got != tt.diff {
			t.Errorf("%+v of %q: %s, want %s", tt.want, tt.got, got, tt.diff)
		}
	}
}

// TestAbsent verifies that a container that the pod does not have is compared with the names that it has.
func TestAbsent(t *testing.T) {
	c := comparison{}
	c.absent(&pod{named: map[string]*cgroup{"databse": {}, "web": {}, "Web": {}, "x\x1b": {}}}, []string{"database", "web", "wed"})
	want := []Difference{
		{"", "containers", `no such container (did you mean "web"?)`, "Web"},
		{"", "containers", `no such container (did you mean "database"?)`, "databse"},
		{"", "containers", "no such container", "x\x1b"},
	}
	if d := cmp.Diff(want, c.out); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestIsSource verifies that a source is named in full or by its first words, and not by a part of a word.
func TestIsSource(t *testing.T) {
	class := policy.Source{Kind: policy.FromRule, Name: "batch/bronze", Entry: 2}
	entry := policy.Source{Kind: policy.FromAnnotation, Name: limitsKey + "container.a", Entry: 10}
	backstop := policy.Source{Kind: policy.FromBackstop}
	for _, tt := range []struct {
		text   string
		source policy.Source
		want   bool
	}{
		{class.String(), class, true},
		{"rule batch, class bronze", class, true},
		{"rule batch", class, true},
		{"rule", class, true},
		{"rule bat", class, false},
		{"batch", class, false},
		{"rule batch, class bronze #", class, false},
		{"rule batch, class bronze #22", class, false},
		{"RULE batch", class, false},
		{entry.String(), entry, true},
		{"limits/container.a", entry, true},
		{"limits/container", entry, false},
		{"limits/container.a #1", entry, false}, // of entry 10
		{"backstop", backstop, true},
		{"backs", backstop, false},
		{"none", policy.Source{}, false},
	} {
		if got := isSource(tt.text, tt.source); got != tt.want {
			t.Errorf("%q of %q: %t", tt.text, tt.source, got)
		}
	}
}

// TestOrigin verifies that a value has its disk and its source, and a value without one the reason.
func TestOrigin(t *testing.T) {
	source := policy.Source{Kind: policy.FromClass, Name: "gold"}
	for want, tt := range map[string]struct {
		source  policy.Source
		refused string
		disk    string
	}{
		"":                                 {},
		" on d":                            {disk: "d"},
		" from class gold":                 {source: source},
		" on d from class gold":            {source: source, refused: "x", disk: "d"},
		" on d (the container is refused)": {refused: "x", disk: "d"},
	} {
		if got := origin(tt.source, &check.Decision{Refused: tt.refused}, tt.disk); got != want {
			t.Errorf("%+v: %q, want %q", tt, got, want)
		}
	}
}

// TestSettingOf verifies that a setting is one of its key and its disk. The weight on all disks has no disk.
func TestSettingOf(t *testing.T) {
	one, two := blkio.Dev{Major: 8}, blkio.Dev{Major: 9}
	d := &check.Decision{Disks: map[blkio.Dev]string{one: "one", two: "two"}}
	add := func(k blkio.Key, dev blkio.Dev, amount blkio.Amount) {
		d.Settings = append(d.Settings, policy.Setting{Value: blkio.Value{Address: blkio.Address{Key: k, Dev: dev}, Amount: amount}})
	}
	add(blkio.Wbps, two, 2)
	add(blkio.Wbps, one, 1)
	add(blkio.DiskWeight, one, 30)
	for _, tt := range []struct {
		key  blkio.Key
		disk string
		want blkio.Amount
	}{
		{blkio.Wbps, "one", 1}, {blkio.Wbps, "two", 2}, {blkio.Wbps, "three", blkio.Unset}, {blkio.Rbps, "one", blkio.Unset}, {blkio.DiskWeight, "one", 30}, {blkio.DiskWeight, "two", blkio.Unset},
	} {
		if s := settingOf(d, tt.key, tt.disk); s.Amount != tt.want || s.Key != tt.key {
			t.Errorf("%s on %s: %+v, want %d", tt.key, tt.disk, s, tt.want)
		}
	}
}

// TestSameEachTime verifies that differences and notes are the same in each run, in the order of the file and
// of the containers.
func TestSameEachTime(t *testing.T) {
	checker := testChecker(t)
	requests := map[string]string{limitsKey + "containers": "* wbps=1", weightKey + "container.x": "5", limitsKey + "container.y": "/", classKey + "container.z": "A", limitsKey + "nothing": ""}
	const text = `- {name: a, pod: {labels: {b: c, a: d}}, expect: {rule: x, containers: {z: {}, y: {}, x: {}, w: {}, c: {refused: x}, b: {refused: x}, a: {refused: x}}}}`
	first := compare(t, checker, volumePod("web", requests), text)
	if len(first) < 9 || !slices.IsSortedFunc(first[1:4], strings.Compare) || !strings.HasPrefix(first[7], "containers: got no such container") {
		t.Fatalf("%d: %q", len(first), first)
	}
	for range 10 {
		if d := cmp.Diff(first, compare(t, checker, volumePod("web", requests), text)); d != "" {
			t.Fatalf("another run:\n%s", d)
		}
	}
}

// TestNoContainers verifies that expectations of each container are not compared for a pod that has none.
func TestNoContainers(t *testing.T) {
	m := &manifest.Pod{Object: manifest.Object{Kind: "Pod", Namespace: "batch-1", Name: "p"}}
	got := compare(t, testChecker(t), m, `- {name: a, expect: {eachContainer: {class: x, weight: 5}, podTotal: {limits: [{target: "*", wbps: 1Mi}]}, containers: {a: {}}}}`)
	want := []string{"containers: got no such container, want a", "podTotal limits * wbps: got no disk: no container has it, want 1Mi"}
	if d := cmp.Diff(want, got[:min(len(got), 2)]); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
