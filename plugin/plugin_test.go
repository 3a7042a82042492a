package plugin

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/runtime-tools/generate"
	"github.com/google/go-cmp/cmp"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

const (
	limitsKey = "limits.blkio.noderesource.dev/"
	weightKey = "weight.blkio.noderesource.dev/"
)

var (
	rootDisk = blkio.Disk{Dev: blkio.Dev{Major: 254}, Name: "vda"}
	dataDisk = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 16}, Name: "vdb"}
)

// disks is a Storage whose answers are given by path prefix.
type disks struct{ resolve func(string) blkio.Backing }

func (d disks) Refresh(context.Context) error { return nil }

func (d disks) Resolve(_ context.Context, path string) blkio.Backing { return d.resolve(path) }

func (d disks) Below(context.Context, string, string) (string, blkio.Backing, bool) {
	return "", blkio.Backing{}, false
}

func (d disks) Submounts(context.Context, string) iter.Seq2[string, blkio.Backing] {
	return func(func(string, blkio.Backing) bool) {}
}

func (d disks) Device(dev blkio.Dev) blkio.Backing {
	return on(blkio.Disk{Dev: dev, Name: "raw"})
}

func (d disks) FilesystemAt(string) blkio.Dev { return blkio.Dev{} }

func (d disks) Under(context.Context, blkio.Dev) []blkio.Disk { return nil }

func (d disks) MountedDisks() map[blkio.Dev]bool { return nil }

func (d disks) SwapDisks(context.Context) ([]blkio.Disk, error) { return nil, nil }

func on(disk blkio.Disk) blkio.Backing {
	return blkio.Backing{FSType: "ext4", Disks: []blkio.Disk{disk}}
}

func twoDisks(path string) blkio.Backing {
	switch {
	case strings.HasPrefix(path, "/mnt/data"):
		return on(dataDisk)
	case strings.HasPrefix(path, "/mnt/mem"):
		return blkio.Backing{FSType: "tmpfs", Reason: "tmpfs is memory, not a disk"}
	}
	return on(rootDisk)
}

// tree is a directory with the files of a pod's and its containers' cgroups.
// What the kernel does with a write is seen on the node, not here.
func tree(t testing.TB, cgroups ...string) (*cgroupfs.Hierarchy, string) {
	t.Helper()
	dir := memoryDir(t) // ext4 has 4 KiB of attributes for a directory: those of five containers
	write(t, filepath.Join(dir, "cgroup.controllers"), "cpu io memory\n")
	for _, cg := range cgroups {
		if err := os.MkdirAll(filepath.Join(dir, cg), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, cg, "io.max"), "")
		write(t, filepath.Join(dir, cg, "io.weight"), "default 100\n")
		write(t, filepath.Join(dir, cg, "cgroup.events"), "populated 1\nfrozen 0\n")
	}
	h, err := cgroupfs.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, dir
}

func write(t testing.TB, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func newPlugin(t testing.TB, h *cgroupfs.Hierarchy) *Plugin {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	n, err := New(Config{Log: log, Policy: policy.Default(), Storage: disks{twoDisks}, Cgroups: h, Layers: inventory.Layers{Default: inventory.Layer{Dir: "/var/lib/containerd"}}})
	if err != nil {
		t.Fatal(err)
	}
	n.connection.active() // as Run does, once it holds the lock
	return n
}

const podCgroup = "kubepods.slice/kubepods-pod1.slice"

func sandbox(annotations map[string]string) *api.PodSandbox {
	return &api.PodSandbox{
		Id: "sb1", Name: "db-0", Namespace: "prod", Uid: "u1", Annotations: annotations,
		Linux: &api.LinuxPodSandbox{CgroupParent: "/" + podCgroup},
	}
}

func ctr(name string, mounts ...*api.Mount) *api.Container {
	return &api.Container{
		Id: "id-" + name, PodSandboxId: "sb1", Name: name, Mounts: mounts,
		Linux: &api.LinuxContainer{CgroupsPath: "kubepods-pod1.slice:cri-containerd:id-" + name},
	}
}

func cgroupOf(name string) string { return podCgroup + "/cri-containerd-id-" + name + ".scope" }

func bind(src, dst string, opts ...string) *api.Mount {
	return &api.Mount{Type: "bind", Source: src, Destination: dst, Options: opts}
}

// specGenerator is as much of a runtime's generator as unified values take.
type specGenerator struct {
	generate.UnderlyingGenerator
	spec *rspec.Spec
}

func (g specGenerator) Spec() *rspec.Spec { return g.spec }

func (g specGenerator) AddLinuxResourcesUnified(key, value string) {
	if g.spec.Linux.Resources.Unified == nil {
		g.spec.Linux.Resources.Unified = map[string]string{}
	}
	g.spec.Linux.Resources.Unified[key] = value
}

// TestCreateSpec asserts the OCI spec that results, through NRI's own
// generator: what the runtime will see.
func TestCreateSpec(t *testing.T) {
	data := bind("/mnt/data/db", "/data")
	tests := []struct {
		name        string
		annotations map[string]string
		mounts      []*api.Mount
		splitsLines bool
		want        map[string]string
	}{
		{name: "no annotations", mounts: []*api.Mount{data}},
		{
			name: "one disk", annotations: map[string]string{limitsKey + "container.db": "/data wbps=50Mi riops=2k"},
			mounts: []*api.Mount{data}, want: map[string]string{"io.max": "254:16 wbps=52428800 riops=2000"},
		},
		{
			name: "two disks where lines are not split: the second comes at start", mounts: []*api.Mount{data},
			annotations: map[string]string{limitsKey + "containers": "* wbps=1Mi"},
			want:        map[string]string{"io.max": "254:0 wbps=1048576"},
		},
		{
			name: "two disks where lines are split", mounts: []*api.Mount{data}, splitsLines: true,
			annotations: map[string]string{limitsKey + "containers": "* wbps=1Mi"},
			want:        map[string]string{"io.max": "254:0 wbps=1048576\n254:16 wbps=1048576"},
		},
		{name: "max is what a fresh cgroup has", annotations: map[string]string{limitsKey + "containers": "rootfs wbps=max"}},
		{name: "weight", annotations: map[string]string{weightKey + "container.db": "50"}, want: map[string]string{"io.weight": "50"}},
		{name: "another container's", annotations: map[string]string{limitsKey + "container.other": "rootfs wbps=1Mi"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := tree(t, podCgroup)
			adjust, err := newPlugin(t, h).create(t.Context(), sandbox(tt.annotations), ctr("db", tt.mounts...), tt.splitsLines)
			if err != nil {
				t.Fatal(err)
			}
			spec := &rspec.Spec{Linux: &rspec.Linux{Resources: &rspec.LinuxResources{}}}
			if err := generate.SpecGenerator(specGenerator{spec: spec}).Adjust(adjust); err != nil {
				t.Fatal(err)
			}
			got := spec.Linux.Resources.Unified
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("unified (-want +got):\n%s", d)
			}
		})
	}
}

func TestCreateRefusesAndLeavesNothing(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newPlugin(t, h)
	sb := sandbox(map[string]string{limitsKey + "container.db": "/data wpbs=50Mi"})
	var texts []string
	for range 3 {
		_, err := n.create(t.Context(), sb, ctr("db"), false)
		if _, ok := errors.AsType[*annotation.Error](err); !ok {
			t.Fatalf("got %v, want a refusal", err)
		}
		texts = append(texts, err.Error())
		n.stopped("sb1", "id-db") // containerd undoes a refused create
		n.removed("sb1", "id-db")
	}
	want := `nri-blkio: limits.blkio.noderesource.dev/container.db: entry 1 "/data wpbs=50Mi": unknown key "wpbs" (did you mean "wbps"?)`
	for _, text := range texts {
		if text != want {
			t.Errorf("got  %s\nwant %s", text, want)
		}
	}
	if count := len(n.pods["sb1"].containers); count != 0 {
		t.Errorf("%d containers left behind", count)
	}
}

func TestObserveTouchesNothing(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("db"))
	n := newPlugin(t, h)
	pol := *policy.Default()
	pol.Mode = policy.ModeObserve
	n.Reload(&pol)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi", limitsKey + "pod-total": "rootfs wbps=1Mi"})
	c := ctr("db")
	if adjust, err := n.create(t.Context(), sb, c, false); adjust != nil || err != nil {
		t.Errorf("create: %v, %v", adjust, err)
	}
	if err := n.start(t.Context(), sb, c, true); err != nil {
		t.Error(err)
	}
	if got := read(t, filepath.Join(dir, cgroupOf("db"), "io.max")); got != "" {
		t.Errorf("io.max written: %q", got)
	}
	r, err := record.Read(h.Cgroup(cgroupOf("db")), record.KindContainer)
	if err != nil || r == nil || !r.Observed || len(r.Settings) != 1 {
		t.Errorf("record: %+v, %v", r, err)
	}
}

func TestKataIsRefused(t *testing.T) {
	h, _ := tree(t, podCgroup)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	sb.RuntimeHandler = "kata"
	_, err := newPlugin(t, h).create(t.Context(), sb, ctr("db"), false)
	if _, ok := errors.AsType[*annotation.Error](err); !ok {
		t.Errorf("got %v, want a refusal", err)
	}
}
