package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestWriterOutlivesSandbox verifies that a write that hangs while the pod's only sandbox is replaced is not
// done after the writes for the next sandbox. Such a write left a limit on the pod's cgroup that no record
// named, and that stayed for as long as the pod.
func TestWriterOutlivesSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newModelKernel(t)
		for _, cgroup := range []string{podCgroup, cgroupOf("a"), cgroupOf("b")} {
			k.make(cgroup, true)
		}
		n := newNode(t, k.tree)
		first := sandbox(map[string]string{limitsKey + "container.a": "rootfs wbps=1Mi"})
		next := sandbox(first.Annotations)
		next.ID = "sb2"
		b := ctr("b") // has no limit, so that its pod has none
		b.Sandbox = next.ID
		start := func(fn func(context.Context) error) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return fn(ctx)
		}

		k.hang(podCgroup)
		if err := start(func(ctx context.Context) error { return n.start(ctx, first, ctr("a"), true) }); err == nil {
			t.Error("a start did not wait for the disk")
		}
		n.Stopped(first.ID, "id-a")
		n.RemovedPod(first.ID)
		_ = start(func(ctx context.Context) error { return n.start(ctx, next, b, true) }) // it may wait, too
		k.answer()
		time.Sleep(time.Second)
		synctest.Wait()
		n.pass(t.Context())
		if got := wbps(t, n, podCgroup); got != blkio.Max {
			t.Errorf("the pod has %v beside a container without a limit", got)
		}
		n.RemovedPod(next.ID)
		if count := len(n.peek().groups); count != 0 {
			t.Errorf("%d groups are left", count)
		}
	})
}
