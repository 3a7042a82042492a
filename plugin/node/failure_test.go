package node

import (
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/record"
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
