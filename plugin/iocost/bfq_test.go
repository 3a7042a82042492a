package iocost

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// schedule applies a setup with bfq, or without it, on a disk with the scheduler that it has now.
func (k *kernel) schedule(byBFQ bool) State {
	k.t.Helper()
	return k.apply(Setup{Disk: vda, Identity: "diskseq 1", Scheduler: k.schedulers[vda.Dev], LowLatency: k.lowLatency, By: map[bool]string{true: BFQ}[byBFQ], Enabled: byBFQ})[0]
}

// wantQueue compares the writes to the queue since the last call.
func (k *kernel) wantQueue(writes ...string) {
	k.t.Helper()
	if diff := cmp.Diff(writes, k.queue); diff != "" {
		k.t.Errorf("writes to the queue: -want +got:\n%s", diff)
	}
	k.queue = nil
}

// TestBFQ verifies that a disk is given to bfq once, and gets its former scheduler back. io.cost is disabled first.
func TestBFQ(t *testing.T) {
	k := newKernel(t)
	k.schedulers[vda.Dev] = "mq-deadline"
	k.apply(Setup{Disk: vda, Identity: "diskseq 1", Enabled: true, Scheduler: "mq-deadline"})
	k.writes = nil
	for range 2 {
		if s := k.schedule(true); !s.Works || s.Err != nil {
			t.Errorf("%+v", s)
		}
	}
	k.want("io.cost.qos 254:0 enable=0 ctrl=auto")
	k.wantQueue("scheduler bfq", "iosched/low_latency 0")
	serves, err := ServesBFQ(k.tree)
	if err != nil || !serves[vda.Dev] {
		t.Errorf("served by bfq: %v, %v", serves, err)
	}
	if s := k.schedule(false); s.Works || s.Err != nil {
		t.Errorf("%+v", s)
	}
	k.wantQueue("scheduler mq-deadline")
	if got := k.attribute(); got != "" {
		t.Errorf("the record is %s", got)
	}
}

// TestBFQBefore verifies that a disk that had bfq before keeps it, without the weights of this program.
func TestBFQBefore(t *testing.T) {
	k := newKernel(t)
	k.schedulers[vda.Dev] = BFQ
	k.schedule(true)
	k.wantQueue("iosched/low_latency 0")
	k.schedule(false)
	k.wantQueue("scheduler none", "scheduler bfq")
}

// TestBFQForeign verifies that a scheduler that another program sets later is an error, and stays, also when bfq is not wanted any more.
func TestBFQForeign(t *testing.T) {
	k := newKernel(t)
	k.schedulers[vda.Dev] = "none"
	k.schedule(true)
	k.queue, k.schedulers[vda.Dev] = nil, "kyber"
	for range 2 {
		if s := k.schedule(true); s.Works || s.Err == nil || !strings.Contains(s.Err.Error(), "changed the scheduler to kyber") {
			t.Errorf("%+v", s)
		}
	}
	k.schedulers[vda.Dev] = BFQ // by hand
	if s := k.schedule(true); !s.Works || s.Err != nil {
		t.Errorf("%+v", s)
	}
	k.schedulers[vda.Dev] = "kyber"
	k.schedule(false)
	k.wantQueue()
	if got := k.attribute(); got != "" {
		t.Errorf("the record is %s", got)
	}
}

// TestBFQLowLatency verifies that low_latency that another program enables later is an error, and stays, while the weights are kept.
func TestBFQLowLatency(t *testing.T) {
	k := newKernel(t)
	k.schedulers[vda.Dev], k.lowLatency = BFQ, "1"
	if s := k.schedule(true); !s.Works || s.Err != nil {
		t.Errorf("%+v", s)
	}
	k.wantQueue("iosched/low_latency 0")
	for range 2 {
		if s := k.schedule(true); !s.Works || !errors.Is(s.Err, errLowLatency) {
			t.Errorf("%+v", s)
		}
	}
	k.wantQueue()
	k.lowLatency = "0"
	if s := k.schedule(true); !s.Works || s.Err != nil {
		t.Errorf("%+v", s)
	}
}

// TestBFQFails verifies that an error is tried again, and that nothing is left of it.
func TestBFQFails(t *testing.T) {
	for _, err := range []error{unix.EINVAL, unix.EIO} {
		k := newKernel(t)
		k.schedulers[vda.Dev] = "none"
		k.noQueue = err
		if s := k.schedule(true); s.Works || !errors.Is(s.Err, err) {
			t.Errorf("%+v", s)
		}
		k.noQueue = nil
		if s := k.schedule(true); !s.Works || s.Err != nil {
			t.Errorf("%+v", s)
		}
		k.noQueue = err
		if s := k.schedule(false); !errors.Is(s.Err, err) {
			t.Errorf("%+v", s)
		}
		k.noQueue = nil
		k.schedule(false)
		if got := k.attribute() + k.schedulers[vda.Dev]; got != "none" {
			t.Errorf("left: %s", got)
		}
	}
}

// TestBFQSwapped verifies that another disk under the same number keeps its scheduler, also if that is bfq. A loop device that gets another
// file keeps the bfq of this program, and gets its former scheduler back.
func TestBFQSwapped(t *testing.T) {
	for _, next := range []Setup{{Scheduler: "mq-deadline"}, {Scheduler: BFQ, LowLatency: "1"}, {Scheduler: BFQ}} {
		k := newKernel(t)
		k.schedulers[vda.Dev] = "none"
		k.schedule(true)
		k.queue = nil
		next.Disk, next.Identity = vda, "diskseq 2"
		k.apply(next)
		if next.Scheduler == BFQ && next.LowLatency == "" {
			k.wantQueue("scheduler none")
		} else {
			k.wantQueue()
		}
		if got := k.attribute(); got != "" {
			t.Errorf("the record is %s", got)
		}
	}
}

// TestBFQWithoutCost verifies that bfq is set up on a kernel without io.cost, and cleared.
func TestBFQWithoutCost(t *testing.T) {
	k := newKernel(t)
	for _, file := range []string{blkio.IOCostModel, blkio.IOCostQOS} {
		if err := os.Remove(filepath.Join(k.dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	k.schedulers[vda.Dev] = "none"
	setups := []Setup{{Disk: vda, Scheduler: "none", By: BFQ, Enabled: true}, {Disk: vdb, Enabled: true}}
	states, err := Apply(k.tree, nil, k.setQueue, setups, false)
	if !errors.Is(err, blkio.ErrNotSupported) || len(states) != 2 || !states[0].Works || states[1].Works || states[1].Err != nil {
		t.Errorf("%+v, %v", states, err)
	}
	k.wantQueue("scheduler bfq", "iosched/low_latency 0")
	setups[0].Scheduler = BFQ
	for _, dryRun := range []bool{true, false} {
		steps, err := Clear(k.tree, k.setQueue, setups, dryRun)
		if diff := cmp.Diff([]string{`write queue/scheduler of 254:0 "none"`}, steps); err != nil || diff != "" {
			t.Errorf("%v, %s", err, diff)
		}
	}
	k.wantQueue("scheduler none")
	if got := k.attribute(); got != "" {
		t.Errorf("the record is %s", got)
	}
}

// TestBFQLate verifies that a write of bfq that was given up, and that the kernel can still make, is followed by one of the former
// scheduler once bfq is not wanted any more. The former one is that before the last attempt.
func TestBFQLate(t *testing.T) {
	k := newKernel(t)
	for _, former := range []string{"mq-deadline", "kyber"} {
		k.schedulers[vda.Dev], k.noQueue = former, unix.ETIMEDOUT
		if s := k.schedule(true); !errors.Is(s.Err, unix.ETIMEDOUT) {
			t.Errorf("%+v", s)
		}
	}
	k.queue, k.noQueue = nil, nil
	k.schedule(false)
	k.wantQueue("scheduler kyber")
	if got := k.attribute(); got != "" {
		t.Errorf("the record is %s", got)
	}
}
