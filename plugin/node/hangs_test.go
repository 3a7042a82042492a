package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
)

// TestReconcileWhileSandboxesChange lets the race detector check that a group's sandboxes can change while the
// reconciler works on it.
func TestReconcileWhileSandboxesChange(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	sb := limited("rootfs wbps=1Mi")
	g := n.lookup(sb).group
	var events sync.WaitGroup
	events.Go(func() {
		for i := range 100 {
			next := sandbox(sb.Annotations)
			next.ID = fmt.Sprint("next", i)
			n.lookup(next)
			n.RemovedPod(next.ID)
		}
	})
	for range 100 {
		n.reconcileGroup(t.Context(), g)
	}
	events.Wait()
}

// TestWriteHangs verifies that a write counts as hanging by the time that it takes.
func TestWriteHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := tree(t, podCgroup)
		n := newNode(t, h)
		g := n.lookup(limited("rootfs wbps=1Mi")).group
		if err := g.takeNow(); err != nil {
			t.Fatal(err)
		}
		if err := g.takeNow(); !errors.Is(err, errWritten) {
			t.Error("a write that has just begun hangs")
		}
		time.Sleep(passDeadline + time.Second)
		if err := g.takeNow(); !errors.Is(err, cause.ErrWriteHangs) {
			t.Errorf("a write that takes longer than %v does not hang", passDeadline)
		}
		n.release(g)
		if err := g.takeNow(); err != nil {
			t.Error("a write hangs although none is under way")
		}
	})
}

// TestHungReadDelaysNoOther verifies that the other pods are compared with their cgroups while a read of one pod's cgroups hangs, that
// the read becomes known as a problem, and that it does not keep the reconciler from returning. A read of a pipe hangs, also for the
// clock of a bubble.
func TestHungReadDelaysNoOther(t *testing.T) {
	k := fakenode.NewKernel(t)
	n := newNode(t, k.Open(t, nil))
	n.resync = 50 * time.Millisecond
	sb, other, o := limited("rootfs wbps=2Mi"), tenant("2", "rootfs wbps=2Mi"), member(tenant("2", ""), "a")
	limits := sliceOf("2") + "/cri-containerd-" + o.ID + ".scope"
	for _, cgroup := range []string{podCgroup, cgroupOf("a"), sliceOf("2"), limits} {
		k.Make(cgroup, true)
	}
	start(t, n, sb, "a")
	if err := n.start(t.Context(), other, o, true); err != nil {
		t.Fatal(err)
	}
	n.pass(t.Context())
	n.pass(t.Context())
	release := k.HangReads(cgroupOf("a"), "io.max")
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		n.reconcile(ctx)
	}()
	until := func(what string, holds func() bool) {
		t.Helper()
		for began := time.Now(); !holds(); time.Sleep(time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("%s: not within a minute", what)
			}
		}
	}
	until("the problem is known", func() bool { return n.census().NotInForce == 1 })
	k.Unplug(rootDisk.Dev)
	until("the other pod has its limit again", func() bool { return k.Limits(limits)[rootDisk.Dev][blkio.Wbps] == 2*mi })
	cancel()
	until("the reconciler returns", func() bool {
		select {
		case <-returned:
			return true
		default:
			return false
		}
	})
	release()
	until("the read ends", func() bool { return !n.peek().pods[sb.ID].group.token.IsHeld() })
}

// TestSearchBeginsBeforeSteady verifies that a pod whose disks are searched for again is not left out of passes, although the search
// has not taken long yet: it may hang, and the passes say so.
func TestSearchBeginsBeforeSteady(t *testing.T) {
	k := fakenode.NewKernel(t)
	n := newNode(t, k.Open(t, nil))
	sb := limited("rootfs wbps=2Mi")
	for _, cgroup := range []string{podCgroup, cgroupOf("a")} {
		k.Make(cgroup, true)
	}
	start(t, n, sb, "a")
	steady := func() bool {
		n.pass(t.Context())
		n.pass(t.Context())
		s := n.state.Lock()
		defer n.state.Unlock()
		return s.pods[sb.ID].group.in(s).plan.policy != nil
	}
	if !steady() {
		t.Fatal("the pod is not steady at first: the test cannot show anything")
	}
	s := n.state.Lock()
	c := s.pods[sb.ID].containers[0]
	c.token.TryTake()
	c.search.err = cause.ErrNoAnswer
	s.changed(c.pod.group.in(s))
	s.markDirty(c.pod.group.in(s))
	n.state.Unlock()
	if steady() {
		t.Error("a search is under way, and the pod is steady")
	}
	n.endSearch(&c.snapshot, false)
	if !steady() {
		t.Error("the search has ended, and the pod is not steady")
	}
}

// TestRaiseWaits verifies that Raise waits for another writer of the pod, and gives up if that one hangs.
func TestRaiseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := tree(t, podCgroup)
		n := newNode(t, h)
		g := n.lookup(limited("rootfs wbps=1Mi")).group
		raise := func() error {
			return n.Raise(t.Context(), g.key, func(string, blkio.Address) bool { return false })
		}
		if !g.token.Take(t.Context().Done()) {
			t.Fatal("a free group cannot be taken")
		}
		if err := raise(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v beside a write that hangs", err)
		}
		time.AfterFunc(passDeadline/2, func() { n.release(g) })
		if err := raise(); err != nil {
			t.Errorf("%v beside a write that ends", err)
		}
	})
}

// TestRaiseBelow verifies that limits are also raised on the cgroup of crun, which keeps those of the spec.
func TestRaiseBelow(t *testing.T) {
	sub := cgroupOf("a") + "/container"
	h, dir := tree(t, podCgroup, cgroupOf("a"), sub)
	n := newNode(t, h)
	for _, cg := range []string{cgroupOf("a"), sub} {
		write(t, filepath.Join(dir, cg, "io.max"), "254:0 rbps=max wbps=1048576 riops=max wiops=max\n")
	}
	c := ctr("a")
	c.Unified = map[string]string{"io.max": "254:0 wbps=1048576"}
	if err := n.start(t.Context(), limited("rootfs wbps=2Mi"), c, true); err != nil {
		t.Fatal(err)
	}
	for _, cg := range []string{cgroupOf("a"), sub} {
		if got := wbps(t, n, cg); got != 2<<20 {
			t.Errorf("%s has %v, want 2 MiB/s", cg, got)
		}
	}
}

// TestHugeRecord verifies that limits are in force although their record is too large for any filesystem.
func TestHugeRecord(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	many := blkio.Backing{FSType: "btrfs"}
	for i := range 10000 {
		many.Disks = append(many.Disks, blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: uint32(i)}, Name: "vd"})
	}
	n.storage = fakenode.NewResolver(func(string) blkio.Backing { return many })
	err := n.start(t.Context(), limited("rootfs wbps=1Mi"), ctr("a"), true)
	if err == nil {
		t.Error("a record that cannot be written: no error")
	}
	m, err := h.Cgroup(cgroupOf("a")).ReadIOMax()
	if err != nil || len(m) == 0 {
		t.Errorf("io.max is %v, %v", m, err)
	}
}
