package node

import (
	"context"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/handover"
)

// slowSync is longer than a hand-over waits for a sync.
const slowSync = time.Minute

// writeOut is what a hand-over does once it knows what a container has to have synced.
func (n *Node) writeOut(ctx context.Context, c identity, u handover.Unsynced) {
	n.exits.writeout.Write(ctx, endedPod{n.applier(), c.pod.group}, c.id, u)
}

// nothing takes the place of tidying up, where that is of no interest.
func nothing(context.Context, handover.Pod) {}

// sleep waits, and until all that happens at that time has.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestSlowSyncKeepsLittle: a sync can take hours. Neither a pod that has been removed
// nor its container is kept for it.
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
			c, _ := n.pods.noteEnded(cgroupOf("a"))
			n.writeOut(t.Context(), c.identity, handover.Unsynced{Volumes: []handover.Volume{{Path: "/", Disk: rootDisk.Dev}}})
			n.Stopped("sb1", c.id)
			n.Removed("sb1", c.id)
			n.RemovedPod("sb1")
			return weak.Make(c.pod.in(n.peek()))
		}()
		synctest.Wait()
		n.pods.takeDirty()
		runtime.GC()
		runtime.GC()
		if gone.Value() != nil {
			t.Error("the pod is kept")
		}
		close(hung)
		sleep(2 * slowSync)
	})
}

// TestCleanBehindSlowSync: another pod's slow data keeps a sync under way for hours. The
// limits of a pod without anything dirty go nevertheless, and not before that.
func TestCleanBehindSlowSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, dir := tree(t, podCgroup)
		d := &drainedPod{t, newNode(t, h)}
		stat := filepath.Join(dir, podCgroup, "memory.stat")
		write(t, stat, "anon 8192\nfile_dirty 4096\nfile_writeback 0\n")
		hung := make(chan struct{})
		d.p.exits.writeout.Syncs.Sync = func(context.Context, string) error { <-hung; return nil }
		a := d.run("a")
		d.end(a)
		d.p.writeOut(t.Context(), a.identity, handover.Unsynced{Volumes: []handover.Volume{{Path: "/", Disk: rootDisk.Dev}}})
		passes := func() {
			for range 3 {
				d.p.findClean(t.Context(), d.p.pods.takeAll())
			}
			synctest.Wait()
		}
		sleep(slowSync / 2)
		write(t, stat, "anon 8192\nfile_dirty 0\nfile_writeback 0\n")
		passes()
		d.want(9<<20, blkio.Unset) // the sync has its minute
		sleep(slowSync)
		write(t, stat, "anon 8192\nfile_dirty 0\nfile_writeback 4096\n")
		passes()
		d.want(9<<20, blkio.Unset)
		write(t, stat, "anon 8192\nfile_dirty 0\nfile_writeback 0\n")
		passes()
		d.want(blkio.Unset, blkio.Unset)
		close(hung)
		sleep(time.Hour)
	})
}
