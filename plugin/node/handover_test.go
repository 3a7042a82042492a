package node

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/nri-blkio/nri-blkio/plugin/handover"
)

// slowSync is longer than a hand-over waits for a sync.
const slowSync = time.Minute

// writeOut writes out the data of an ended container, as a hand-over does once it knows which filesystems to
// sync.
func (n *Node) writeOut(ctx context.Context, c identity, u handover.Unsynced) {
	n.exits.writeout.Write(ctx, endedPod{n, c.pod.group}, c.id, u)
}

// sleep waits for d, and then until all goroutines that were to run at that time are blocked.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestSlowSyncKeepsLittle verifies that neither a removed pod nor its container is kept during a sync, which
// can take hours.
func TestSlowSyncKeepsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := tree(t, podCgroup, cgroupOf("a"))
		n := newNode(t, h)
		hung := make(chan struct{})
		n.exits.writeout.Syncs.Sync = func(context.Context, string) error { <-hung; return nil }
		gone := func() weak.Pointer[pod] {
			sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
			if err := n.start(t.Context(), sb, ctr("a"), true); err != nil {
				t.Fatal(err)
			}
			c, _ := n.noteEnded(cgroupOf("a"))
			n.writeOut(t.Context(), c.identity, handover.Unsynced{Volumes: []handover.Volume{{Path: "/", Disk: rootDisk.Dev}}})
			n.Stopped("sb1", c.id)
			n.Removed("sb1", c.id)
			n.RemovedPod("sb1")
			return weak.Make(c.pod.in(n.peek()))
		}()
		synctest.Wait()
		runtime.GC()
		runtime.GC()
		if gone.Value() != nil {
			t.Error("the pod is kept")
		}
		close(hung)
		sleep(2 * slowSync)
	})
}
