package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
)

// listed is a container as Synchronize lists it.
func listed(name string, state State) *Container {
	c := ctr(name)
	c.State = state
	return c
}

const (
	isRunning = Running
	isStopped = Stopped
)

// TestRanUnseen verifies that a container which was started and has ended while the plugin
// was not connected counts as one with unwritten data, however the runtime lists it then.
func TestRanUnseen(t *testing.T) {
	sb := sandbox(map[string]string{limitsKey + "pod-total": "rootfs wbps=1Mi"})
	next := sandbox(sb.Annotations)
	next.ID = "sb2"
	for name, lists := range map[string]struct {
		sandbox    *Sandbox
		containers []*Container
	}{
		"stopped":        {sb, []*Container{listed("a", isStopped)}},
		"not listed":     {sb, nil},
		"sandbox is new": {next, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h, dir := tree(t, podCgroup)
			n := newNode(t, h)
			n.exits.writeout.Tidy = nothing
			if _, err := n.create(t.Context(), sb, ctr("a"), false); err != nil {
				t.Fatal(err)
			}
			g := n.peek().pods["sb1"].group
			n.Synchronize([]*Sandbox{lists.sandbox}, lists.containers)
			if phase := g.in(n.peek()).drain.Phase(); phase != lifecycle.Leftovers {
				t.Errorf("%v after it was listed, want %v", phase, lifecycle.Leftovers)
			}
			write(t, filepath.Join(dir, podCgroup, "memory.stat"), "file_dirty 0\nfile_writeback 0\n")
			for range 3 {
				n.pass(t.Context())
			}
			if phase := g.in(n.peek()).drain.Phase(); phase != lifecycle.Drained {
				t.Errorf("%v once all is written, want %v", phase, lifecycle.Drained)
			}
		})
	}
}

// TestNewestFactsWin verifies that of two containers of one name the disks of the newest one count, whichever
// is resolved last.
func TestNewestFactsWin(t *testing.T) {
	other := blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 16}, Name: "sdb"}
	sb := sandbox(map[string]string{limitsKey + "pod-total": "/data wbps=1Mi"})
	first, second := ctr("a", bind("/mnt/first", "/data")), ctr("a", bind("/mnt/second", "/data"))
	second.ID, second.Cgroup = "id-b", ctr("b").Cgroup
	first.State, second.State = isStopped, isRunning
	started := func(t *testing.T, n *Node) {
		if err := n.start(t.Context(), sb, first, true); err != nil {
			t.Fatal(err)
		}
		n.Stopped("sb1", first.ID) // the kubelet keeps one ended container
		if err := n.start(t.Context(), sb, second, true); err != nil {
			t.Fatal(err)
		}
	}
	adopted := func(_ *testing.T, n *Node) {
		n.Synchronize([]*Sandbox{sb}, []*Container{second, first})
	}
	for name, come := range map[string]func(*testing.T, *Node){"started": started, "adopted": adopted} {
		t.Run(name, func(t *testing.T) {
			h, _ := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
			n := newNode(t, h)
			n.storage = disks{func(path string) blkio.Backing {
				if strings.HasPrefix(path, "/mnt/second") {
					return on(other)
				}
				return on(dataDisk)
			}}
			come(t, n)
			for range 40 { // the order of a map decides which one is resolved last
				n.Reload(policy.Default())
				n.pass(t.Context())
				want := n.planFor(n.peek().pods["sb1"].group).Pod.Want.DevLimits()
				if len(want) != 1 || want[other.Dev][blkio.Wbps] != 1<<20 {
					t.Fatalf("the pod is to have %v", want)
				}
			}
		})
	}
}

// place makes the cgroup of a container.
func place(t *testing.T, dir, name string) {
	t.Helper()
	path := filepath.Join(dir, cgroupOf(name))
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(path, "io.max"), "")
	write(t, filepath.Join(path, "io.weight"), "default 100\n")
	write(t, filepath.Join(path, "cgroup.events"), "populated 1\nfrozen 0\n")
}

// TestProblemEndsWithoutRetry verifies that a pod counts as in force again although the retry was lost with the
// connection, and a later event of the pod wrote all limits.
func TestProblemEndsWithoutRetry(t *testing.T) {
	h, dir := tree(t, podCgroup)
	n := newNode(t, h)
	s := &session{n, time.Minute}
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	if err := s.StartContainer(t.Context(), sb, ctr("a")); err != nil { // restored: it has no process yet
		t.Fatal(err)
	}
	n.pass(t.Context())
	if c := n.census(); c.notInForce != 1 {
		t.Fatalf("%d pods not in force before the cgroup exists, want 1", c.notInForce)
	}
	s.StopContainer(sb, ctr("a"))
	place(t, dir, "b")
	if err := s.StartContainer(t.Context(), sb, ctr("b")); err != nil {
		t.Fatal(err)
	}
	g := n.groups()[0] // the lost connection leaves it undone
	if err := n.apply(t.Context(), g, ""); err != nil || n.planOf(g) == nil {
		t.Fatalf("%v, plan %v, want one that is in force", err, n.planOf(g))
	}
	n.pass(t.Context())
	if c := n.census(); c.notInForce != 0 {
		t.Errorf("%d pods not in force although all limits are written, want 0", c.notInForce)
	}
}

// TestRestoredIsNotTakenForEnded verifies that the cgroup of a container restored from a checkpoint is added to
// the exit watch once it has a process. The watch takes an empty cgroup for that of an ended container.
func TestRestoredIsNotTakenForEnded(t *testing.T) {
	h, dir := tree(t, podCgroup)
	n := newNode(t, h)
	watch := &fakeWatch{}
	n.peek().watch = watch
	start(t, n, sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"}), "a")
	c := n.peek().pods["sb1"].containers["id-a"]
	place(t, dir, "a")
	events := filepath.Join(dir, cgroupOf("a"), "cgroup.events")
	for _, step := range []struct {
		events string
		phase  lifecycle.Phase
		added  int
	}{
		{"populated 0\nfrozen 0\n", lifecycle.Starting, 0},
		{"populated 1\nfrozen 0\n", lifecycle.Watched, 1},
	} {
		write(t, events, step.events)
		n.pass(t.Context())
		if got := wbps(t, n, cgroupOf("a")); got != 1<<20 || c.life.Phase() != step.phase || len(watch.added) != step.added {
			t.Errorf("%q: limit %v, %v, watched %q", step.events, got, c.life.Phase(), watch.added)
		}
	}
}
