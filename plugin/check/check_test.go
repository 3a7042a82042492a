package check

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
)

func testChecker() *Checker {
	return &Checker{
		Policy: policy.Default(),
		Node: Node{
			Storage: numbered{}, KubeletRoot: "/kubelet",
			Layers: inventory.Layers{Default: inventory.Layer{Dir: "sda"}},
		},
	}
}

// numbered has each path on a disk of that name with the number 8:0.
type numbered struct{ pathResolver }

func (numbered) Resolve(_ context.Context, p string) *blkio.Backing {
	return &blkio.Backing{FSType: "ext4", Disks: []blkio.Disk{{Dev: blkio.Dev{Major: 8}, Name: p}}}
}

func (numbered) Physical(dev blkio.Dev) ([]blkio.Disk, error) {
	return []blkio.Disk{{Dev: dev, Name: "sda"}}, nil
}

func lines(r Result) []string {
	var out []string
	for _, w := range r.Writes {
		out = append(out, strings.TrimSpace(w.Cgroup()+" "+w.File+" "+w.Line))
	}
	return out
}

func TestCheckerBackstop(t *testing.T) {
	containersOf := []manifest.Container{
		{Name: "init", Role: manifest.Init},
		{Name: "sidecar", Role: manifest.Sidecar},
		{Name: "a", Role: manifest.Main},
		{Name: "b", Role: manifest.Main},
	}
	const each = "limits.blkio.noderesource.dev/containers"
	const total = "limits.blkio.noderesource.dev/pod-total"
	containers := []string{
		"container init io.max 8:0 wbps=1048576", "container sidecar io.max 8:0 wbps=1048576",
		"container a io.max 8:0 wbps=1048576", "container b io.max 8:0 wbps=1048576",
	}
	tests := []struct {
		name        string
		annotations map[string]string
		want        []string
	}{
		{name: "nothing asked"},
		{
			name:        "all are limited: the sum of those that stay",
			annotations: map[string]string{each: "rootfs wbps=1Mi"},
			want:        append(containers[:4:4], "pod io.max 8:0 wbps=3145728"),
		},
		{
			name:        "a lower total makes the sum needless",
			annotations: map[string]string{each: "rootfs wbps=1Mi", total: "rootfs wbps=2Mi"},
			want:        append(containers[:4:4], "pod io.max 8:0 wbps=2097152"),
		},
		{
			name:        "one is unlimited: no sum",
			annotations: map[string]string{"limits.blkio.noderesource.dev/container.a": "rootfs wbps=1Mi"},
			want:        containers[2:3],
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := testChecker().Pod(context.Background(), &manifest.Pod{Annotations: tt.annotations, Containers: containersOf})
			if len(r.Errors) > 0 {
				t.Fatal(r.Errors)
			}
			if d := cmp.Diff(tt.want, lines(r)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// warned is a pod with one annotation for its container, and the result of check for it.
type warned struct {
	name     string
	change   func(*Checker, *manifest.Pod)
	key      string
	value    string
	warnings []string
	errors   int
}

func (tt *warned) run(t *testing.T) {
	c, m := testChecker(), podOf(map[string]string{tt.key + ".blkio.noderesource.dev/container.c": tt.value}, "c")
	if tt.change != nil {
		tt.change(c, m)
	}
	r := c.Pod(t.Context(), m)
	if len(r.Errors) != tt.errors {
		t.Errorf("errors: %q, want %d", r.Errors, tt.errors)
	}
	if d := cmp.Diff(tt.warnings, r.Warnings); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestCheckerWeightWarnings(t *testing.T) {
	for _, tt := range []warned{
		{name: "weight", key: "weight", value: "50"},
		{
			name: "weight on a kernel without", key: "weight", value: "50", errors: 1,
			change: func(c *Checker, _ *manifest.Pod) { c.Node.Missing = []string{blkio.IOWeight} },
		},
		{
			name: "limit on a kernel without", key: "limits", value: "rootfs wbps=1Mi", errors: 1, // and no memory.high
			change: func(c *Checker, _ *manifest.Pod) { c.Node.Missing = []string{blkio.IOMax} },
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

func TestCheckerMemoryWarnings(t *testing.T) {
	const noMemoryLimit = "container c: write limit without a memory limit of at most half of the node's memory: " +
		"its dirty pages can block all writers of the node (set resources.limits.memory)"
	for _, tt := range []warned{
		{
			name: "write limit without a memory limit", key: "limits", value: "rootfs wbps=1Mi",
			warnings: []string{noMemoryLimit},
		},
		{
			name: "write limit with a memory limit", key: "limits", value: "rootfs wbps=1Mi",
			change: func(c *Checker, m *manifest.Pod) {
				c.Node.Memory, m.Containers[0].MemoryLimit = 8<<30, 4<<30
			},
		},
		{
			name: "a memory limit that bounds nothing", key: "limits", value: "rootfs wbps=1Mi",
			change: func(c *Checker, m *manifest.Pod) {
				c.Node.Memory, m.Containers[0].MemoryLimit = 8<<30, 64<<40
			},
			warnings: []string{noMemoryLimit},
		},
		{
			name: "a memory limit of the pod", key: "limits", value: "rootfs wbps=1Mi",
			change: func(c *Checker, m *manifest.Pod) {
				c.Node.Memory, m.MemoryLimit, m.Containers[0].MemoryLimit = 8<<30, 1<<30, 64<<40
			},
		},
		{name: "read limit", key: "limits", value: "rootfs rbps=1Mi"},
	} {
		t.Run(tt.name, tt.run)
	}
}

func TestCheckerHandlers(t *testing.T) {
	const class = "kata"
	for _, tt := range []warned{
		{
			name: "RuntimeClass without --handler", key: "limits", value: "rootfs rbps=1Mi",
			change:   func(_ *Checker, m *manifest.Pod) { m.RuntimeClass = class },
			warnings: []string{`the handler of RuntimeClass "kata" is unknown (set --handler to check it)`},
		},
		{
			name: "a handler with a kernel of its own", key: "limits", value: "rootfs rbps=1Mi", errors: 1,
			change: func(c *Checker, m *manifest.Pod) { m.RuntimeClass, c.Handler = class, class },
		},
	} {
		t.Run(tt.name, tt.run)
	}
}

func TestCheckerRootfsByHandler(t *testing.T) {
	const thin = "thin"
	for name, tt := range map[string]struct {
		handler string
		class   string
		refused bool
	}{
		"no class":                        {},
		"a class is taken for a handler":  {class: thin, refused: true},
		"a handler":                       {handler: thin, refused: true},
		"the handler of the class is not": {handler: "runc", class: thin},
	} {
		c := testChecker()
		c.Handler = tt.handler
		c.Policy.HostKernelHandlers = append(c.Policy.HostKernelHandlers, thin)
		c.Node.Layers.Handlers = map[string]inventory.Layer{thin: {Reason: "it has a device of its own"}}
		r := c.Pod(context.Background(), &manifest.Pod{
			Annotations:  map[string]string{"limits.blkio.noderesource.dev/container.c": "rootfs rbps=1Mi"},
			RuntimeClass: tt.class,
			Containers:   []manifest.Container{{Name: "c", Role: manifest.Main}},
		})
		if got := strings.Contains(strings.Join(r.Errors, "\n"), "it has a device of its own"); got != tt.refused {
			t.Errorf("%s: refused %v, want %v: %q", name, got, tt.refused, r.Errors)
		}
	}
}

// TestCheckerUnknownNode verifies that of two volumes one claim is one disk, where limits can contradict one
// another, and different claims are different disks.
func TestCheckerUnknownNode(t *testing.T) {
	for name, tt := range map[string]struct {
		claims []string
		errors int
		writes []string
	}{
		"one claim":  {[]string{"c1", "c1"}, 1, nil},
		"two claims": {[]string{"c1", "c2"}, 0, []string{"container c io.max MAJ:MIN rbps=1048576", "container c io.max MAJ:MIN rbps=2097152"}},
	} {
		pod := manifest.Pod{
			Annotations: map[string]string{"limits.blkio.noderesource.dev/container.c": "/0 rbps=1Mi; /1 rbps=2Mi"},
			Containers:  []manifest.Container{{Name: "c", Role: manifest.Init}},
		}
		for i, claim := range tt.claims {
			v := manifest.Volume{Name: strconv.Itoa(i), Source: manifest.PersistentVolumeClaim, Claim: claim}
			pod.Volumes = append(pod.Volumes, v)
			pod.Containers[0].Mounts = append(pod.Containers[0].Mounts, manifest.Mount{Volume: v.Name, Path: "/" + v.Name})
		}
		c := Checker{Policy: policy.Default()}
		r := c.Pod(t.Context(), &pod)
		if len(r.Errors) != tt.errors || len(r.Warnings) > 0 {
			t.Errorf("%s: errors %q, warnings %q", name, r.Errors, r.Warnings)
		}
		if d := cmp.Diff(tt.writes, lines(r)); d != "" {
			t.Errorf("%s: -want +got:\n%s", name, d)
		}
	}
}

// TestCheckerCanceled verifies that without an answer about the disks there is an error, and no decision.
func TestCheckerCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := testChecker().Pod(ctx, podOf(map[string]string{limitsOf + "containers": "rootfs wbps=1Mi"}, "a"))
	if len(r.Errors) != 1 || !strings.Contains(r.Errors[0], context.Canceled.Error()) || len(r.Writes) > 0 {
		t.Errorf("%+v", r)
	}
}

// TestDiskWeights verifies that the weight of a single disk is a line of its own, also that of a pod as a
// whole.
func TestDiskWeights(t *testing.T) {
	c := testChecker()
	c.Policy.Bounds.MaxWeight = 10000
	const weight = "weight.blkio.noderesource.dev/"
	m := &manifest.Pod{
		Annotations: map[string]string{weight + "containers": "/data 50; * 70", weight + "pod-total": "/data 40"},
		Containers:  []manifest.Container{{Name: "c", Mounts: []manifest.Mount{{Volume: "v", Path: "/data"}}}},
		Volumes:     []manifest.Volume{{Name: "v", Source: manifest.HostPath, Path: "/sdb"}},
	}
	r := c.Pod(t.Context(), m)
	want := []string{"container c io.weight 70", "container c io.weight 50", "pod io.weight 40"}
	if d := cmp.Diff(want, lines(r)); d != "" || len(r.Errors) > 0 {
		t.Errorf("%q, -want +got:\n%s", r.Errors, d)
	}
	for i, disk := range []string{"", "/sdb", "/sdb"} {
		if i < len(r.Writes) && r.Writes[i].Disk != disk {
			t.Errorf("line %d is for %q, want %q", i, r.Writes[i].Disk, disk)
		}
	}
}
