package node

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

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
