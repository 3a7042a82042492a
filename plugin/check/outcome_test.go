package check

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
)

const (
	limitsOf = "limits.blkio.noderesource.dev/"
	weightOf = "weight.blkio.noderesource.dev/"
)

// podOf returns a pod with a main container for each name.
func podOf(annotations map[string]string, names ...string) *manifest.Pod {
	m := &manifest.Pod{Annotations: annotations}
	for _, name := range names {
		m.Containers = append(m.Containers, manifest.Container{Name: name, Role: manifest.Main})
	}
	return m
}

// TestEffects verifies the effects of the policy on errors.
func TestEffects(t *testing.T) {
	const problem = `nri-blkio: limits.blkio.noderesource.dev/container.a: entry 1 "rootfs wbps=1": wbps=1 is under this node's floor (write at least 64Ki)`
	annotations := map[string]string{limitsOf + "container.a": "rootfs wbps=1; * rbps=1Mi", limitsOf + "container.b": "rootfs rbps=2Mi"}
	a, b := "container a io.max 8:0 rbps=1048576", "container b io.max 8:0 rbps=2097152"
	const both = "pod io.max 8:0 rbps=3145728"
	for name, tt := range map[string]struct {
		mode    policy.Mode
		action  policy.Action
		effects []string
		writes  []string
	}{
		"rejected": {
			policy.ModeEnforce, policy.Reject,
			[]string{"container a is not created"},
			[]string{b, "pod io.max 8:0 rbps=2097152"},
		},
		"ignored": {
			policy.ModeEnforce, policy.Ignore,
			[]string{"container a starts without what its errors name, as onError of the node's policy has it"},
			[]string{a, b, both},
		},
		"rejected, observed": {
			policy.ModeObserve, policy.Reject,
			[]string{"container a would not be created in mode enforce", "nothing is written: the node's policy has mode observe"},
			[]string{a, b, both},
		},
		"ignored, observed": {
			policy.ModeObserve, policy.Ignore,
			[]string{
				"in mode enforce, container a starts without what its errors name, as onError of the node's policy has it",
				"nothing is written: the node's policy has mode observe",
			},
			[]string{a, b, both},
		},
	} {
		c := testChecker()
		c.Policy.Mode, c.Policy.OnError.Invalid = tt.mode, tt.action
		r := c.Pod(t.Context(), podOf(annotations, "a", "b"))
		if diff := cmp.Diff(tt.effects, r.Effects); diff != "" {
			t.Errorf("%s: effects -want +got:\n%s", name, diff)
		}
		if diff := cmp.Diff(tt.writes, lines(r)); diff != "" {
			t.Errorf("%s: lines -want +got:\n%s", name, diff)
		}
		if diff := cmp.Diff([]string{problem}, r.Errors); diff != "" {
			t.Errorf("%s: errors -want +got:\n%s", name, diff)
		}
	}
}

// TestSources verifies that a line has each source once, also where the total of the pod and the backstop share
// it.
func TestSources(t *testing.T) {
	r := testChecker().Pod(t.Context(), podOf(map[string]string{
		limitsOf + "containers": "* rbps=1Mi wbps=1Mi", limitsOf + "pod-total": "rootfs wbps=1Mi; * riops=50 wiops=60",
	}, "a", "b"))
	var got []string
	for _, w := range r.Writes {
		got = append(got, w.Cgroup()+" "+w.Line+" from "+w.From())
	}
	want := []string{
		"container a 8:0 rbps=1048576 wbps=1048576 from limits/containers #1",
		"container b 8:0 rbps=1048576 wbps=1048576 from limits/containers #1",
		"pod 8:0 rbps=2097152 wbps=1048576 riops=50 wiops=60 from backstop: the sum of the containers' limits, limits/pod-total #1, limits/pod-total #2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestDirtyGuard verifies that a value that only the creation of a container sets is a line as well.
func TestDirtyGuard(t *testing.T) {
	c := testChecker()
	c.Policy.Writeback.DirtyGuard = 64 << 20
	r := c.Pod(t.Context(), podOf(map[string]string{limitsOf + "container.a": "rootfs wbps=1Mi"}, "a", "b"))
	if diff := cmp.Diff([]string{"container a io.max 8:0 wbps=1048576", "container a memory.high 67108864"}, lines(r)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if w := r.Writes[1]; w.Disk != "" || w.Dev != "" || w.From() != "writeback.dirtyGuard" {
		t.Errorf("%+v", w)
	}
}

// TestPositions verifies that an error has the file and the line of its annotation.
func TestPositions(t *testing.T) {
	m := podOf(map[string]string{limitsOf + "container.a": "rootfs wpbs=1Mi", weightOf + "container.b": "x", limitsOf + "containers": "rootfs rbps=x"}, "a", "b")
	m.Position = manifest.Position{File: "pod.yaml", Line: 3}
	m.Lines = map[string]int{limitsOf + "container.a": 7, weightOf + "container.b": 9}
	want := []string{
		`pod.yaml:7: nri-blkio: limits.blkio.noderesource.dev/container.a: entry 1 "rootfs wpbs=1Mi": unknown key "wpbs" (did you mean "wbps"?)`,
		`nri-blkio: limits.blkio.noderesource.dev/containers: entry 1 "rootfs rbps=x": invalid number "x" (write a whole number such as 50Mi)`,
		`pod.yaml:9: nri-blkio: weight.blkio.noderesource.dev/container.b: "x": invalid weight (write a whole number from 1 to 10000; the default is 100)`,
	}
	if diff := cmp.Diff(want, testChecker().Pod(t.Context(), m).Errors); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestNames verifies that a container that the pod does not have is an error, a path only a warning.
func TestNames(t *testing.T) {
	r := testChecker().Pod(t.Context(), podOf(map[string]string{
		limitsOf + "container.c": "rootfs wbps=1Mi", limitsOf + "containers": "/nope wbps=1Mi",
	}, "a", "b"))
	if diff := cmp.Diff([]string{`unknown container "c" in the annotations (the pod has a, b)`}, r.Errors); diff != "" {
		t.Errorf("errors -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{`limits.blkio.noderesource.dev/containers: entry 1: no container of the pod has a mount at "/nope"`}, r.Warnings); diff != "" {
		t.Errorf("warnings -want +got:\n%s", diff)
	}
	if len(r.Writes) != 0 || len(r.Effects) != 0 || len(r.Skipped) != 2 {
		t.Errorf("%+v", r)
	}
}

// TestUnknown verifies that check names the facts that only a node has, as far as they decide for the pod.
func TestUnknown(t *testing.T) {
	const (
		which   = "which disks these are, and whether they can be limited: "
		one     = "whether some of these are one disk, on which entries can contradict one another"
		mounted = "what is mounted below the paths of hostPath volumes"
		memory  = "whether the memory limits are at most half of the node's memory, so that they bound dirty pages"
		weights = "whether the kernel has io.weight, and the disks can have io.cost"
	)
	for name, tt := range map[string]struct {
		annotations map[string]string
		change      func(*manifest.Pod)
		want        []string
	}{
		"nothing asked": {},
		"one disk":      {map[string]string{limitsOf + "containers": "rootfs rbps=1Mi"}, nil, []string{which + "disk of the writable layers"}},
		"two disks": {
			map[string]string{limitsOf + "containers": "* rbps=1Mi"},
			func(m *manifest.Pod) {
				m.Volumes = []manifest.Volume{{Name: "v", Source: manifest.HostPath, Path: "/srv"}}
				m.Containers[0].Mounts = []manifest.Mount{{Volume: "v", Path: "/v"}}
			},
			[]string{which + "disk of the writable layers, disk of /srv", one, mounted},
		},
		"a memory limit": {
			map[string]string{limitsOf + "containers": "rootfs rbps=1Mi"},
			func(m *manifest.Pod) { m.MemoryLimit = 1 << 30 },
			[]string{which + "disk of the writable layers", memory},
		},
		"a weight": {map[string]string{weightOf + "containers": "50"}, nil, []string{weights}},
	} {
		m := podOf(tt.annotations, "a")
		if tt.change != nil {
			tt.change(m)
		}
		c := Checker{Policy: policy.Default()}
		r := c.Pod(t.Context(), m)
		if diff := cmp.Diff(tt.want, r.Unknown); diff != "" || len(r.Errors) > 0 {
			t.Errorf("%s: %q, -want +got:\n%s", name, r.Errors, diff)
		}
	}
}
