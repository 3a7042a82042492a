package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// start runs containers of a pod.
func start(t *testing.T, n *Node, sb *Sandbox, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := n.start(t.Context(), sb, ctr(name), true); err != nil {
			t.Fatal(err)
		}
	}
}

func recordOf(t *testing.T, n *Node, cgroup string) *record.Record {
	t.Helper()
	kind := record.KindContainer
	if cgroup == podCgroup {
		kind = record.KindPod
	}
	r, err := record.Read(n.cgroups.Cgroup(cgroup), kind)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wbps(t *testing.T, n *Node, cgroup string) blkio.Amount {
	t.Helper()
	rate := limit(t, n, cgroup)[blkio.Wbps]
	if rate == blkio.Unset {
		return blkio.Max
	}
	return rate
}

// TestNotKnowingLiftsNothing verifies that a program that has just started and cannot read the node keeps the
// limits that its predecessor has recorded.
func TestNotKnowingLiftsNothing(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi", limitsKey + "pod-total": "rootfs wbps=512Ki"})
	start(t, newNode(t, h), sb, "a")

	n := newNode(t, h)
	broken := true
	n.storage = flaky{disks{twoDisks}, &broken}
	a := ctr("a")
	a.State = Running
	n.Synchronize([]*Sandbox{sb}, []*Container{a})
	for range 2 {
		n.pass(t.Context())
		if c, pod := wbps(t, n, cgroupOf("a")), wbps(t, n, podCgroup); c != 1<<20 || pod != 1<<19 {
			t.Errorf("the container has %v, the pod %v, want 1 MiB/s and 512 KiB/s", c, pod)
		}
	}
	r := recordOf(t, n, cgroupOf("a"))
	if len(r.Settings) != 1 || !strings.Contains(r.Error, "limits not decided yet: read mounts: no mounts") {
		t.Errorf("record %+v", r)
	}
	broken = false
	n.pass(t.Context())
	if r := recordOf(t, n, cgroupOf("a")); len(r.Settings) != 1 || r.Error != "" {
		t.Errorf("record %+v", r)
	}
}

// TestHungResolution verifies that a container with a volume on a disk that does not answer delays neither its
// neighbour in the pod nor, by its retries, any other pod.
func TestHungResolution(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
	n := newNode(t, h)
	hang := make(chan struct{})
	defer close(hang)
	n.storage = disks{func(path string) blkio.Backing {
		if strings.HasPrefix(path, "/mnt/hung") {
			<-hang
		}
		return twoDisks(path)
	}}
	s := &session{n, 50 * time.Millisecond}
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi", limitsKey + "container.a": "/data wbps=1Mi"})
	if err := s.StartContainer(t.Context(), sb, ctr("a", bind("/mnt/hung/x", "/data"))); err != nil {
		t.Error(err) // internal: ignore
	}
	n.pass(t.Context())
	if err := n.start(t.Context(), sb, ctr("b"), true); err != nil {
		t.Error(err)
	}
	if got := wbps(t, n, cgroupOf("b")); got != 1<<20 {
		t.Errorf("the neighbour has %v, want 1 MiB/s", got)
	}
	if got := wbps(t, n, podCgroup); got != blkio.Max {
		t.Errorf("backstop %v beside a container that nothing is known of", got)
	}
	for range 5 * bounded.MaxOfPod {
		if _, err := s.CreateContainer(t.Context(), sb, ctr("a2", bind("/mnt/hung/x", "/data"))); err != nil {
			t.Fatal(err)
		}
	}
	if count := n.inFlight.calls.Count(); count > bounded.MaxOfPod {
		t.Errorf("one pod has %d calls under way", count)
	}
}

// TestObserveRefusesNothing verifies that no failure rejects a container in observe mode.
func TestObserveRefusesNothing(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	pol := *policy.Default()
	pol.Mode, pol.OnError.Internal = policy.ModeObserve, policy.Reject
	n.Reload(&pol)
	broken := true
	n.storage = flaky{disks{twoDisks}, &broken}
	s := &session{n, time.Second}
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	if _, err := s.CreateContainer(t.Context(), sb, ctr("a")); err != nil {
		t.Error(err)
	}
	pol.Mode = policy.ModeEnforce
	n.Reload(&pol)
	if _, err := s.CreateContainer(t.Context(), sb, ctr("a")); !errors.Is(err, ErrInternal) {
		t.Errorf("enforcing: %v", err)
	}
}

// TestUnlimitedAndGone verifies that a container without limits whose end no event reported does not keep the
// backstop off.
func TestUnlimitedAndGone(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
	n := newNode(t, h)
	start(t, n, sandbox(map[string]string{limitsKey + "container.a": "rootfs wbps=1Mi"}), "a", "b")
	n.pass(t.Context())
	n.pass(t.Context())
	if err := os.RemoveAll(filepath.Join(dir, cgroupOf("b"))); err != nil {
		t.Fatal(err)
	}
	n.pass(t.Context())
	n.pass(t.Context())
	if got := wbps(t, n, podCgroup); got != 1<<20 {
		t.Errorf("backstop %v, want 1 MiB/s", got)
	}
}

// TestObserveLiftsWeight verifies that the spec's weight is removed too.
func TestObserveLiftsWeight(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	sb := sandbox(map[string]string{weightKey + "containers": "50"})
	if _, err := n.create(t.Context(), sb, ctr("a"), false); err != nil {
		t.Fatal(err)
	}
	pol := *policy.Default()
	pol.Mode = policy.ModeObserve
	n.Reload(&pol)
	write(t, filepath.Join(dir, cgroupOf("a"), "io.weight"), "default 50\n") // by the runtime
	start(t, n, sb, "a")
	if got := read(t, filepath.Join(dir, cgroupOf("a"), "io.weight")); got != "default 100" {
		t.Errorf("io.weight is %q", got)
	}
}
