package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
)

// eventually fails the test unless something holds within a minute.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// TestRecordedEnded verifies that a pod of a former class without a running container keeps its limit while it
// has data left to write, and not longer.
func TestRecordedEnded(t *testing.T) {
	for name, end := range map[string]func(*Node){
		"listed": func(n *Node) { n.Synchronize([]*Sandbox{batch()}, []*Container{listed("a", isStopped)}) },
		"ended": func(n *Node) {
			n.Synchronize([]*Sandbox{batch()}, []*Container{listed("a", isRunning)})
			n.Stopped("sb1", "id-a")
		},
	} {
		h, dir := tree(t, podCgroup, cgroupOf("a"))
		n := newNode(t, h)
		n.policy.Store(rules(t, inProd))
		start(t, n, batch(), "a")
		if err := os.RemoveAll(filepath.Join(dir, cgroupOf("a"))); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, podCgroup, "memory.stat"), "file_dirty 4096\nfile_writeback 0\n")
		n = newNode(t, h)
		end(n)
		n.pass(t.Context())
		if phase, got := n.peek().groups[podCgroup].drain.Phase(), wbps(t, n, podCgroup); phase != lifecycle.Leftovers || got != 20<<20 {
			t.Errorf("%s: %v, and the pod has %v", name, phase, got)
		}
		write(t, filepath.Join(dir, podCgroup, "memory.stat"), "file_dirty 0\nfile_writeback 0\n")
		for range 3 {
			n.pass(t.Context())
		}
		eventually(t, name+": the pod is drained", func() bool {
			n.pass(t.Context())
			return wbps(t, n, podCgroup) == blkio.Max
		})
	}
}

// TestAdmittedUnread verifies that an earlier limit counts as delaying writes if a new policy concerns the pod
// before its cgroup was read.
func TestAdmittedUnread(t *testing.T) {
	for _, read := range []bool{false, true} {
		h, _ := tree(t, podCgroup, cgroupOf("a"))
		n := newNode(t, h)
		n.PassBy(batch(), ctr("a"), Running, n.Policy())
		want := lifecycle.WritesUnknown
		if read {
			n.pass(t.Context())
			want = lifecycle.WritesUnlimited
		}
		n.Reload(rules(t, inProd))
		if got := n.peek().pods["sb1"].containers["id-a"].writes(); got != want {
			t.Errorf("read %v: %v, want %v", read, got, want)
		}
	}
}

// TestBystanderRemoved verifies that the next pass forgets a sandbox whose cgroup was removed without an event.
func TestBystanderRemoved(t *testing.T) {
	h, dir := tree(t, podCgroup)
	n := newNode(t, h)
	n.PassBy(batch(), ctr("a"), Running, n.Policy())
	n.pass(t.Context())
	if len(n.peek().pods) != 1 {
		t.Fatal("it is not known")
	}
	if err := os.RemoveAll(filepath.Join(dir, podCgroup)); err != nil {
		t.Fatal(err)
	}
	n.pass(t.Context())
	if s := n.peek(); len(s.bystanders)+len(s.pods)+len(s.groups) != 0 {
		t.Errorf("%v is kept", s.pods)
	}
}
