package weights

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/policy"
)

// decide returns the setup of io.cost that the policy wants on each disk, for run as for reports. weighted
// reports whether a container or pod with a weight uses a disk. With an error about the facts of a disk, the
// disk is decided without them. An error is also about a disk that the policy gives to bfq in vain.
func decide(p *policy.Policy, known Disks, disks []storage.DiskInfo, weighted func(blkio.Disk) bool) ([]iocost.Setup, error) {
	var wants []iocost.Setup
	var errs []error
	byBFQ := map[blkio.Dev]bool{}
	for i := range disks {
		facts, err := factsOf(known, &disks[i])
		errs = append(errs, err)
		byBFQ[facts.Dev] = p.DiskRule(facts.Facts).Weights == policy.WeightsBFQ
		facts.HasWeights = weighted(facts.Disk)
		want := iocost.Decide(p, facts)
		want.Below = disks[i].Below
		wants = append(wants, want)
	}
	for i := range disks {
		if d := &disks[i]; byBFQ[d.Dev] && slices.ContainsFunc(d.Below, func(below blkio.Disk) bool { return !byBFQ[below.Dev] }) {
			errs = append(errs, fmt.Errorf("the node policy has weights: bfq for disk %s, which has no scheduler of its own: match the disks below it, %s",
				d.Name, strings.Join(blkio.DiskNames(d.Below), " and ")))
		}
	}
	return wants, errors.Join(errs...)
}

// Preview returns the state of io.cost that a Keeper would set up on each disk if a container with a weight
// used it, sorted by number. It changes nothing: State.Works is true where io.cost is enabled now. With an
// error about the facts of one disk, the states are returned as well.
func Preview(cgroups *cgroupfs.Hierarchy, p *policy.Policy, known Disks) ([]iocost.State, error) {
	disks, err := known.Disks()
	if err != nil {
		return nil, err
	}
	wants, unread := decide(p, known, disks, func(blkio.Disk) bool { return true })
	states, err := iocost.Inspect(cgroups, wants)
	if errors.Is(err, blkio.ErrNotSupported) {
		unsupported(p, states)
		err = nil
	}
	return states, errors.Join(unread, err)
}

// factsOf returns the facts that decide on io.cost of a disk. With an error, a measurement of the disk or
// udev's database cannot be read, and counts as unknown.
func factsOf(known Disks, d *storage.DiskInfo) (*iocost.Disk, error) {
	out := &iocost.Disk{
		Disk: d.Disk, Identity: identity(d), Facts: policy.Disk{Name: d.Name, Model: d.Model, Rotational: d.Rotational},
		Unsupported: whyUnsupported(d), Scheduler: d.Scheduler, LowLatency: d.LowLatency,
	}
	if out.Unsupported != "" {
		return out, nil
	}
	var errs [2]error
	out.Calibration, errs[0] = known.Calibration(d)
	out.Udev, errs[1] = known.Udev(d)
	return out, errors.Join(errs[:]...)
}

func identity(d *storage.DiskInfo) string {
	if d.Seq != 0 {
		return fmt.Sprintf("diskseq %d", d.Seq)
	}
	return cmp.Or(d.Serial, d.WWID)
}

// whyUnsupported returns why a disk cannot have io.cost, or "".
//
// Source: blk_iocost_init and blkcg_conf_get_disk's callers in block/blk-iocost.c, which refuse
// a queue that is not queue_is_mq.
func whyUnsupported(d *storage.DiskInfo) string {
	switch {
	case len(d.Below) > 0:
		return "io.cost works on the disks below: " + strings.Join(blkio.DiskNames(d.Below), ", ")
	case !d.RequestBased:
		return "its driver has no queue of requests (blk-mq)"
	}
	return ""
}

// errNoReserve is why the reserve has no effect on a kernel without io.cost.
var errNoReserve = errors.New("the reserve has no effect, because the kernel has no io.cost (CONFIG_BLK_CGROUP_IOCOST): limit pods instead")

// unsupported changes the states of disks on a kernel without io.cost. No annotation asks for the reserve, so an error tells that it has
// no effect.
func unsupported(p *policy.Policy, states []iocost.State) {
	for i := range states {
		s := &states[i]
		if s.By == iocost.BFQ {
			continue
		}
		reserved := s.Enabled && reserveOf(p) != 0
		s.Enabled, s.Reason = false, "the kernel has no io.cost (CONFIG_BLK_CGROUP_IOCOST)"
		if reserved {
			s.Reason, s.Err = errNoReserve.Error(), cmp.Or(s.Err, errNoReserve)
		}
	}
}
