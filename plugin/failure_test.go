package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// start runs containers of a pod.
func start(t *testing.T, p *Plugin, sb *api.PodSandbox, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := p.start(t.Context(), sb, ctr(n), true); err != nil {
			t.Fatal(err)
		}
	}
}

func recordOf(t *testing.T, p *Plugin, cgroup string) *record.Record {
	t.Helper()
	kind := record.KindContainer
	if cgroup == podCgroup {
		kind = record.KindPod
	}
	r, err := record.Read(p.cgroups.Cgroup(cgroup), kind)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wbps(t *testing.T, p *Plugin, cgroup string) blkio.Amount {
	t.Helper()
	rate := limit(t, p, cgroup)[blkio.Wbps]
	if rate == blkio.Unset {
		return blkio.Max
	}
	return rate
}

// TestNotKnowingLiftsNothing: a program that has just started and cannot look at
// the node leaves what its predecessor has recorded.
func TestNotKnowingLiftsNothing(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi", limitsKey + "pod-total": "rootfs wbps=512Ki"})
	start(t, newPlugin(t, h), sb, "a")

	p := newPlugin(t, h)
	broken := true
	p.storage = flaky{disks{twoDisks}, &broken}
	a := ctr("a")
	a.State = api.ContainerState_CONTAINER_RUNNING
	p.synchronize([]*api.PodSandbox{sb}, []*api.Container{a})
	for range 2 {
		p.pass(t.Context())
		if c, pod := wbps(t, p, cgroupOf("a")), wbps(t, p, podCgroup); c != 1<<20 || pod != 1<<19 {
			t.Errorf("the container has %v, the pod %v, want 1 MiB/s and 512 KiB/s", c, pod)
		}
	}
	r := recordOf(t, p, cgroupOf("a"))
	if len(r.Settings) != 1 || !strings.Contains(r.Error, "limits not decided yet: read mounts: no mounts") {
		t.Errorf("record %+v", r)
	}
	broken = false
	p.pass(t.Context())
	if r := recordOf(t, p, cgroupOf("a")); len(r.Settings) != 1 || r.Error != "" {
		t.Errorf("record %+v", r)
	}
}

// TestHungLook: a container whose volume's disk does not answer holds up neither
// its neighbour in the pod nor, with its retries, any other pod.
func TestHungLook(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
	p := newPlugin(t, h)
	hang := make(chan struct{})
	defer close(hang)
	p.storage = disks{func(path string) blkio.Backing {
		if strings.HasPrefix(path, "/mnt/hung") {
			<-hang
		}
		return twoDisks(path)
	}}
	s := &session{p: p, log: p.log, deadline: 50 * time.Millisecond}
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi", limitsKey + "container.a": "/data wbps=1Mi"})
	if err := s.StartContainer(t.Context(), sb, ctr("a", bind("/mnt/hung/x", "/data"))); err != nil {
		t.Error(err) // internal: ignore
	}
	p.pass(t.Context())
	if err := p.start(t.Context(), sb, ctr("b"), true); err != nil {
		t.Error(err)
	}
	if got := wbps(t, p, cgroupOf("b")); got != 1<<20 {
		t.Errorf("the neighbour has %v, want 1 MiB/s", got)
	}
	if got := wbps(t, p, podCgroup); got != blkio.Max {
		t.Errorf("backstop %v beside a container that nothing is known of", got)
	}
	for range 5 * bounded.MaxOfPod {
		if _, _, err := s.CreateContainer(t.Context(), sb, ctr("a2", bind("/mnt/hung/x", "/data"))); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.inFlight.calls.Count(); n > bounded.MaxOfPod {
		t.Errorf("one pod has %d calls under way", n)
	}
}

// TestObserveRefusesNothing, whatever fails.
func TestObserveRefusesNothing(t *testing.T) {
	h, _ := tree(t, podCgroup)
	p := newPlugin(t, h)
	pol := *policy.Default()
	pol.Mode, pol.OnError.Internal = policy.ModeObserve, policy.Reject
	p.Reload(&pol)
	broken := true
	p.storage = flaky{disks{twoDisks}, &broken}
	s := &session{p: p, log: p.log, deadline: time.Second}
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	if _, _, err := s.CreateContainer(t.Context(), sb, ctr("a")); err != nil {
		t.Error(err)
	}
	pol.Mode = policy.ModeEnforce
	p.Reload(&pol)
	if _, _, err := s.CreateContainer(t.Context(), sb, ctr("a")); !errors.Is(err, errInternal) {
		t.Errorf("enforcing: %v", err)
	}
	// A pod without annotations is none of our business.
	if _, _, err := s.CreateContainer(t.Context(), sandbox(nil), ctr("a")); err != nil {
		t.Error(err)
	}
}

// TestUnlimitedAndGone: a container without limits that no event told the end of
// does not keep the backstop off.
func TestUnlimitedAndGone(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
	p := newPlugin(t, h)
	start(t, p, sandbox(map[string]string{limitsKey + "container.a": "rootfs wbps=1Mi"}), "a", "b")
	p.pass(t.Context())
	p.pass(t.Context())
	if err := os.RemoveAll(filepath.Join(dir, cgroupOf("b"))); err != nil {
		t.Fatal(err)
	}
	p.pass(t.Context())
	p.pass(t.Context())
	if got := wbps(t, p, podCgroup); got != 1<<20 {
		t.Errorf("backstop %v, want 1 MiB/s", got)
	}
}

// TestObserveLiftsWeight: the spec's weight is written back too.
func TestObserveLiftsWeight(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	p := newPlugin(t, h)
	sb := sandbox(map[string]string{weightKey + "containers": "50"})
	if _, err := p.create(t.Context(), sb, ctr("a"), false); err != nil {
		t.Fatal(err)
	}
	pol := *policy.Default()
	pol.Mode = policy.ModeObserve
	p.Reload(&pol)
	write(t, filepath.Join(dir, cgroupOf("a"), "io.weight"), "default 50\n") // by the runtime
	start(t, p, sb, "a")
	if got := read(t, filepath.Join(dir, cgroupOf("a"), "io.weight")); got != "default 100" {
		t.Errorf("io.weight is %q", got)
	}
}
