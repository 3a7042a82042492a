package node

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

const (
	limitsKey  = "limits.blkio.noderesource.dev/"
	weightKey  = "weight.blkio.noderesource.dev/"
	podVolumes = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~"
	mi         = 1 << 20
)

var (
	rootDisk = blkio.Disk{Dev: blkio.Dev{Major: 254}, Name: "vda"}
	dataDisk = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 16}, Name: "vdb"}
)

// onlyOn is a Storage in which all paths are on one disk.
func onlyOn(disk blkio.Disk) Storage {
	return fakenode.NewResolver(func(string) blkio.Backing { return fakenode.On(disk) })
}

// tree returns a directory with the files of the cgroups of a pod and its containers. The tests on a node cover
// the kernel's handling of a write.
func tree(t testing.TB, cgroups ...string) (*cgroupfs.Hierarchy, string) {
	t.Helper()
	dir := fakenode.MemoryDir(t) // ext4 has 4 KiB of attributes for a directory, which is enough for five containers
	write(t, filepath.Join(dir, "cgroup.controllers"), "cpu io memory\n")
	for _, cg := range cgroups {
		makeCgroup(t, dir, cg)
	}
	h, err := cgroupfs.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, dir
}

// makeCgroup makes the files of a cgroup with a process.
func makeCgroup(t testing.TB, dir, cgroup string) {
	t.Helper()
	fakenode.WriteFiles(t, filepath.Join(dir, cgroup), map[string]string{
		"io.max": "", "io.weight": "default 100\n", "cgroup.events": "populated 1\nfrozen 0\n",
	})
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
	n, err := New(Config{Log: log, Policy: policy.Default(), Storage: fakenode.MountTable{Disks: fakenode.NewDisks()}, Cgroups: h, Layers: inventory.Layers{Default: inventory.Layer{Dir: "/var/lib/containerd"}}})
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

// lookup returns the pod of a sandbox.
func (n *Node) lookup(sb *Sandbox) podIdentity {
	pod, _ := n.enter(sb)
	return pod
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

// CreateContainer returns the settings of the spec.
func (s *session) CreateContainer(ctx context.Context, sb *Sandbox, c *Container) (policy.Settings, error) {
	return s.createUnder(ctx, sb, c, false)
}

// createUnder is CreateContainer under a runtime that splits lines or not.
func (s *session) createUnder(ctx context.Context, sb *Sandbox, c *Container, splitsLines bool) (policy.Settings, error) {
	if !s.n.Enter(sb, c, Created) {
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
	if !s.n.Enter(sb, c, Running) {
		return nil
	}
	ctx, cancel := bounded.Deadline(ctx, s.deadline)
	defer cancel()
	return s.n.Start(ctx, sb, c, canRefuse)
}

// StopContainer sends an event of a container. The event has no sandbox if that was removed.
func (s *session) StopContainer(sb *Sandbox, c *Container) { s.n.Stopped(sandboxID(sb, c), c.ID) }

func (s *session) RemoveContainer(sb *Sandbox, c *Container) { s.n.Removed(sandboxID(sb, c), c.ID) }

func sandboxID(sb *Sandbox, c *Container) string {
	if sb == nil {
		return c.Sandbox
	}
	return sb.ID
}

func cgroupOf(name string) string { return podCgroup + "/cri-containerd-id-" + name + ".scope" }

func bind(src, dst string, opts ...string) inventory.Mount {
	return inventory.Mount{Type: "bind", Source: src, Destination: dst, Options: inventory.ParseOptions(opts...)}
}

// limited is a pod whose containers each have this value of the annotation.
func limited(value string) *Sandbox { return sandbox(annotationsOf(limitsKey+"containers", value)) }

// annotationsOf returns annotations from KEY, VALUE...
func annotationsOf(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

// start runs containers of a pod.
func start(t *testing.T, n *Node, sb *Sandbox, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := n.start(t.Context(), sb, ctr(name), true); err != nil {
			t.Fatal(err)
		}
	}
}

// wbps returns the limit of a cgroup on the disk of "/".
func wbps(t *testing.T, n *Node, cgroup string) blkio.Amount {
	t.Helper()
	m, err := n.cgroups.Cgroup(cgroup).ReadIOMax()
	if err != nil {
		t.Fatal(err)
	}
	if rate := m[rootDisk.Dev][blkio.Wbps]; rate != blkio.Unset {
		return rate
	}
	return blkio.Max
}
