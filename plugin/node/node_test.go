package node

import (
	"context"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

const (
	limitsKey = "limits.blkio.noderesource.dev/"
	weightKey = "weight.blkio.noderesource.dev/"
)

var (
	rootDisk = blkio.Disk{Dev: blkio.Dev{Major: 254}, Name: "vda"}
	dataDisk = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 16}, Name: "vdb"}
)

// disks is a Storage with an answer for each path prefix.
type disks struct{ resolve func(string) blkio.Backing }

func (d disks) Refresh(context.Context) error { return nil }

func (d disks) Resolve(_ context.Context, path string) blkio.Backing { return d.resolve(path) }

func (d disks) Below(context.Context, string, string) (string, blkio.Backing, bool) {
	return "", blkio.Backing{}, false
}

func (d disks) Submounts(context.Context, string) iter.Seq2[string, blkio.Backing] {
	return func(func(string, blkio.Backing) bool) {}
}

func (disks) Links(blkio.Dev) []string { return nil }

func (disks) Physical(disk blkio.Dev) ([]blkio.Disk, error) { return []blkio.Disk{{Dev: disk}}, nil }

func (d disks) Device(dev blkio.Dev) blkio.Backing {
	return on(blkio.Disk{Dev: dev, Name: "raw"})
}

func (d disks) FilesystemAt(string) blkio.Dev { return blkio.Dev{} }

func (d disks) Locate(_ context.Context, p string) (string, bool) { return p, true }

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

// tree returns a directory with the files of the cgroups of a pod and its containers. The tests on a node cover
// the kernel's handling of a write.
func tree(t testing.TB, cgroups ...string) (*cgroupfs.Hierarchy, string) {
	t.Helper()
	dir := memoryDir(t) // ext4 has 4 KiB of attributes for a directory, which is enough for five containers
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

func newNode(t testing.TB, h *cgroupfs.Hierarchy) *Node {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	n, err := New(Config{Log: log, Policy: policy.Default(), Storage: disks{twoDisks}, Cgroups: h, Layers: inventory.Layers{Default: inventory.Layer{Dir: "/var/lib/containerd"}}})
	if err != nil {
		t.Fatal(err)
	}
	// A call that is still under way would use the file descriptor of h after the test. By then the descriptor
	// can belong to the next test's tree: its pod then had a backstop of another test.
	t.Cleanup(func() {
		n.inFlight.passes.Wait(passDeadline)
		n.inFlight.calls.Wait(passDeadline)
	})
	return n
}

// peek returns the state, for a test with a single goroutine.
func (n *Node) peek() *state {
	s := n.state.Lock()
	defer n.state.Unlock()
	return s
}

const podCgroup = "kubepods.slice/kubepods-pod1.slice"

func sandbox(annotations map[string]string) *Sandbox {
	return &Sandbox{ID: "sb1", UID: "u1", Cgroup: "/" + podCgroup, Facts: podfacts.Facts{Name: "db-0", Namespace: "prod", Annotations: annotations}}
}

func ctr(name string, mounts ...inventory.Mount) *Container {
	return &Container{ID: "id-" + name, Sandbox: "sb1", Name: name, Cgroup: "kubepods-pod1.slice:cri-containerd:id-" + name, Spec: specOf(name, mounts...)}
}

// specOf returns a function that makes the description of a container's mounts, as the adapter does.
func specOf(name string, mounts ...inventory.Mount) func() *inventory.Spec {
	return func() *inventory.Spec { return &inventory.Spec{Name: name, Mounts: slices.Clone(mounts)} }
}

// handlerDeadline is the deadline of an event with the runtimes' default timeout.
const handlerDeadline = 500 * time.Millisecond

// session hands events to the state, each with a deadline, as the adapter does.
type session struct {
	n        *Node
	deadline time.Duration
}

// passesBy decides as the session of the plugin does.
func (s *session) passesBy(sb *Sandbox, c *Container, now State) bool {
	pol := s.n.Policy()
	concerned := sb.Concerns(pol) || s.n.Knows(sb.ID, sb.Cgroup)
	return !concerned && !s.n.PassBy(sb, c, now, pol)
}

// CreateContainer returns the settings of the spec.
func (s *session) CreateContainer(ctx context.Context, sb *Sandbox, c *Container) (policy.Settings, error) {
	return s.createUnder(ctx, sb, c, false)
}

// createUnder is CreateContainer under a runtime that splits lines or not.
func (s *session) createUnder(ctx context.Context, sb *Sandbox, c *Container, splitsLines bool) (policy.Settings, error) {
	if s.passesBy(sb, c, Created) {
		return nil, nil
	}
	ctx, cancel := bounded.Deadline(ctx, s.deadline)
	defer cancel()
	spec, decided, err := s.n.Create(ctx, sb, c, splitsLines)
	if !decided && len(spec) > 0 {
		panic("settings without a decision")
	}
	return spec, err
}

func (s *session) StartContainer(ctx context.Context, sb *Sandbox, c *Container) error {
	return s.startUnder(ctx, sb, c, true)
}

// startUnder is StartContainer under a runtime that heeds its errors or not.
func (s *session) startUnder(ctx context.Context, sb *Sandbox, c *Container, canRefuse bool) error {
	if s.passesBy(sb, c, Running) {
		return nil
	}
	ctx, cancel := bounded.Deadline(ctx, s.deadline)
	defer cancel()
	return s.n.Start(ctx, sb, c, canRefuse)
}

// StopContainer sends an event of a container. The event has no sandbox if that was removed.
func (s *session) StopContainer(sb *Sandbox, c *Container) { s.n.Stopped(sandboxID(sb, c), c.ID) }

func (s *session) RemoveContainer(sb *Sandbox, c *Container) { s.n.Removed(sandboxID(sb, c), c.ID) }

func (s *session) PostUpdateContainer(sb *Sandbox, c *Container) { s.n.Updated(sandboxID(sb, c)) }

func sandboxID(sb *Sandbox, c *Container) string {
	if sb == nil {
		return c.Sandbox
	}
	return sb.ID
}

func cgroupOf(name string) string { return podCgroup + "/cri-containerd-id-" + name + ".scope" }

func bind(src, dst string, opts ...string) inventory.Mount {
	return inventory.Mount{Type: "bind", Source: src, Destination: dst, Options: opts}
}
