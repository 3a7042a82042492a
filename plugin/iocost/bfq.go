package iocost

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// BFQ is the scheduler that divides a disk by weights.
const BFQ = "bfq"

// errLowLatency is about a disk with bfq whose low_latency was enabled later, also by a change of the scheduler and back. It is not written
// again: that would be a contest with another program.
var errLowLatency = errors.New("another program has enabled bfq's low_latency, which favours single processes over weights: write 0 to queue/iosched/low_latency of the disk")

// schedule sets the scheduler of a disk to bfq, once. low_latency would raise the weights of single processes.
//
// Source: bfq_update_bfqq_wr_on_rq_arrival in block/bfq-iosched.c.
func (a *actual) schedule(want *Setup) error {
	dev := want.Disk.Dev
	if err := a.remove(dev); err != nil {
		return err
	}
	own := a.owned[dev]
	switch {
	case own.IsBFQ && want.Scheduler != BFQ:
		return fmt.Errorf("another program has changed the scheduler to %s: remove weights: bfq from the node policy, and add it again to use bfq", want.Scheduler)
	case own.IsBFQ && want.LowLatency == "1":
		return errLowLatency
	case own.IsBFQ:
		return nil
	}
	if want.Scheduler != BFQ { // since a failed attempt it may have changed
		own.Scheduler = want.Scheduler
	}
	own.Disk, own.Scheduler = want.Identity, cmp.Or(own.Scheduler, want.Scheduler, "none")
	if err := a.record(dev, own); err != nil {
		return err
	}
	if want.Scheduler != BFQ {
		if err := a.queue(dev, "scheduler", BFQ); err != nil {
			return err
		}
	}
	if err := a.queue(dev, "iosched/low_latency", "0"); err != nil {
		return err
	}
	own.IsBFQ = true
	return a.record(dev, own)
}

// restore gives a disk its former scheduler back, and none of the weights of this program. It writes nothing if another program has changed
// the scheduler since: with another one than bfq the kernel drops all weights and settings of bfq. If bfq was never seen in force, a write of
// it can still be under way in the kernel, and the former one is set after it.
//
// Source: bfq_exit_queue in block/bfq-iosched.c.
func (a *actual) restore(dev blkio.Dev, now string) error {
	own := a.owned[dev]
	var schedulers []string
	switch former := own.Scheduler; {
	case former == "":
		return nil
	case now == "" || now != BFQ && own.IsBFQ:
	case former == BFQ:
		schedulers = []string{"none", BFQ}
	default:
		schedulers = []string{former}
	}
	for _, scheduler := range schedulers {
		if a.steps = append(a.steps, fmt.Sprintf("write queue/scheduler of %s %q", dev, scheduler)); a.dryRun {
			continue
		}
		if err := a.queue(dev, "scheduler", scheduler); err != nil {
			return err
		}
	}
	own.Scheduler, own.IsBFQ = "", false
	return a.record(dev, own)
}

// ServesBFQ returns the disks that this program has given to bfq.
func ServesBFQ(cgroups *cgroupfs.Hierarchy) (map[blkio.Dev]bool, error) {
	a, err := read(cgroups, nil, nil)
	if err != nil {
		return nil, err
	}
	out := map[blkio.Dev]bool{}
	for dev, own := range a.owned {
		out[dev] = own.IsBFQ
	}
	return out, nil
}
