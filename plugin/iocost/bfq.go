package iocost

import (
	"cmp"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

const bfq = "bfq"

// schedule sets the scheduler of a disk to bfq, once. low_latency would raise the weights of single processes. A kernel that has bfq as a
// module loads it with the write.
//
// Source: elv_iosched_load_module in block/elevator.c, bfq_update_bfqq_wr_on_rq_arrival in block/bfq-iosched.c.
func (a *actual) schedule(want *Setup) error {
	dev := want.Disk.Dev
	if err := a.remove(dev); err != nil {
		return err
	}
	own := a.owned[dev]
	switch {
	case own.IsBFQ && want.Scheduler != bfq:
		return fmt.Errorf("another program has changed the scheduler from bfq to %s, which is not overwritten: set it to bfq, or remove weights: bfq from the node policy", want.Scheduler)
	case own.IsBFQ:
		return nil
	}
	own.Disk, own.Scheduler = want.Identity, cmp.Or(own.Scheduler, want.Scheduler)
	if err := a.record(dev, own); err != nil {
		return err
	}
	if want.Scheduler != bfq {
		if err := a.queue(dev, "scheduler", bfq); err != nil {
			return explain(err)
		}
	}
	if err := a.queue(dev, "iosched/low_latency", "0"); err != nil {
		return explain(err)
	}
	own.IsBFQ = true
	return a.record(dev, own)
}

// explain adds the likely cause to an error of a write to a queue.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w: the kernel has no scheduler bfq (CONFIG_IOSCHED_BFQ)", err)
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: in a pod, set limits.schedulers in the values of the chart", err)
	}
	return err
}

// restoration returns the schedulers to set so that a disk has its former one, and no weights of this program. There are none if another
// program has changed it since: with another scheduler than bfq the kernel drops all weights and settings of bfq.
//
// Source: bfq_exit_queue in block/bfq-iosched.c.
func (a *actual) restoration(dev blkio.Dev, now string) []string {
	switch former := a.owned[dev].Scheduler; {
	case former == "" || now != bfq:
		return nil
	case former == bfq:
		return []string{"none", bfq}
	default:
		return []string{former}
	}
}

// restore gives a disk its former scheduler back.
func (a *actual) restore(dev blkio.Dev, now string) error {
	own := a.owned[dev]
	if own.Scheduler == "" {
		return nil
	}
	for _, scheduler := range a.restoration(dev, now) {
		if err := a.queue(dev, "scheduler", scheduler); err != nil {
			return explain(err)
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
