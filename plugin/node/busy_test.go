package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
)

// hangCalls occupies calls, each of another pod, until the test ends or free is called.
func hangCalls(t *testing.T, c *bounded.Calls, pods ...string) (free func()) {
	t.Helper()
	hang, started := make(chan struct{}), make(chan struct{})
	for _, pod := range pods {
		go func() {
			_ = c.Within(t.Context(), pod, func(context.Context) error { // it ends with the test
				started <- struct{}{}
				<-hang
				return nil
			})
		}()
	}
	for range pods {
		<-started
	}
	free = sync.OnceFunc(func() { close(hang) })
	t.Cleanup(free)
	return free
}

// TestBusy verifies that a container is known, counted, and limited by the reconciler, although no call was
// left for it when it was created and started.
func TestBusy(t *testing.T) {
	var others []string
	for i := range bounded.Max {
		others = append(others, fmt.Sprint("other", i/bounded.MaxOfPod))
	}
	for name, hung := range map[string][]string{
		"calls of the same pod": {podCgroup, podCgroup},
		"calls of all pods":     others,
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
			n := newNode(t, h)
			s := &session{n, time.Minute}
			sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
			start(t, n, sb, "a")
			if got := wbps(t, n, podCgroup); got != 1<<20 {
				t.Fatalf("backstop %v, want 1 MiB/s", got)
			}
			hangCalls(t, &n.inFlight.calls, hung...)
			if adjust, err := s.CreateContainer(t.Context(), sb, ctr("b")); adjust != nil || err != nil {
				t.Fatalf("create: %v, %v", adjust, err)
			}
			if err := s.StartContainer(t.Context(), sb, ctr("b")); err != nil {
				t.Fatal(err)
			}
			if c := n.census(); c.notInForce != 1 || c.states != [...]int{1, 0, 1, 0} {
				t.Errorf("%d pods not in force, states %v", c.notInForce, c.states)
			}
			// The reconciler has no call left to resolve it, either.
			free := hangCalls(t, &n.inFlight.passes, podCgroup+" resolve", podCgroup+" resolve")
			n.pass(t.Context())
			if c := n.census(); c.notInForce != 1 {
				t.Error("the pod does not count as not in force after a pass that could not resolve it")
			}
			if r := recordOf(t, n, cgroupOf("b")); !strings.Contains(r.Error, bounded.ErrBusy.Error()) {
				t.Errorf("record %+v", r)
			}
			if got := wbps(t, n, podCgroup); got != blkio.Max {
				t.Errorf("backstop %v beside a container without limits", got)
			}
			free()
			n.inFlight.passes.Wait(time.Minute)
			n.pass(t.Context())
			if c, pod := wbps(t, n, cgroupOf("b")), wbps(t, n, podCgroup); c != 1<<20 || pod != 2<<20 {
				t.Errorf("the container has %v, the pod %v", c, pod)
			}
			if c := n.census(); c.notInForce != 0 {
				t.Error("counted as not in force")
			}
		})
	}
}

// TestBusyIsRejected verifies that a container that cannot be resolved is rejected where the policy asks for
// that.
func TestBusyIsRejected(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	pol := *policy.Default()
	pol.OnError.Internal = policy.Reject
	n.Reload(&pol)
	s := &session{n, time.Minute}
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	hangCalls(t, &n.inFlight.calls, podCgroup, podCgroup)
	if _, err := s.CreateContainer(t.Context(), sb, ctr("a")); !errors.Is(err, ErrInternal) {
		t.Errorf("create: %v", err)
	}
	if err := s.StartContainer(t.Context(), sb, ctr("a")); !errors.Is(err, ErrInternal) {
		t.Errorf("start: %v", err)
	}
}

// TestReconcileWhileSandboxesChange lets the race detector check that a group's sandboxes can change while the
// reconciler works on it.
func TestReconcileWhileSandboxesChange(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
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

// TestRefusedIsNotDrained verifies that a container may run after its start was refused, because the runtime
// may not have received the answer. Once it is known to have ended, it has left no data.
func TestRefusedIsNotDrained(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi; /x wbps=1", limitsKey + "pod-total": "rootfs wbps=9Mi"})
	if err := n.start(t.Context(), sb, ctr("a"), true); err == nil {
		t.Fatal("not refused")
	}
	g := n.lookup(sb).group.in(n.peek())
	if phase := g.drain.Phase(); phase != lifecycle.InUse {
		t.Errorf("%v while it may run", phase)
	}
	if n.census().notInForce != 0 {
		t.Error("a refusal counts as a failure to limit")
	}
	n.Stopped("sb1", "id-a")
	if phase := g.drain.Phase(); phase != lifecycle.Drained {
		t.Errorf("%v after its end", phase)
	}
}

// TestWriteHangs verifies that a write counts as hanging by the time that it takes, and not by that of an earlier
// write: a new writer has the token a moment before it notes its time.
func TestWriteHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := tree(t, podCgroup)
		n := newNode(t, h)
		g := n.lookup(sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})).group
		if !n.take(g, t.Context().Done()) {
			t.Fatal("a free group cannot be taken")
		}
		time.Sleep(passDeadline + time.Second)
		if err := n.takeNow(g); !errors.Is(err, errWriteHangs) {
			t.Errorf("a write that takes longer than %v does not hang", passDeadline)
		}
		n.release(g)
		time.Sleep(passDeadline + time.Second)
		g.token <- struct{}{} // what take does first
		if err := n.takeNow(g); !errors.Is(err, errWritten) {
			t.Error("a write that has just begun hangs, by the time of an earlier one")
		}
		n.release(g)
		if err := n.takeNow(g); err != nil {
			t.Error("a write hangs although none is under way")
		}
	})
}
