package node

import (
	"context"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

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
	until("the problem is known", func() bool { return n.census().notInForce == 1 })
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
	until("the read ends", func() bool { return len(n.peek().pods[sb.ID].group.token) == 0 })
}
