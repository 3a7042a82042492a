package weights

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/calibrate"
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

// NodeDisks has the Disks of this node.
type NodeDisks struct {
	Sysfs storage.Sysfs
	// SysfsDir is the directory of Sysfs, for writes.
	SysfsDir string
	// UdevData is the directory /run/udev/data.
	UdevData fs.FS
	// CalibrationDir is the directory with the results of calibrate.
	CalibrationDir string
}

// Disks returns all disks, sorted by number.
func (n NodeDisks) Disks() ([]storage.DiskInfo, error) { return n.Sysfs.Disks() }

// SetQueue writes a file of a disk's queue.
func (n NodeDisks) SetQueue(dev blkio.Dev, file, value string) error {
	return storage.SetQueue(n.SysfsDir, dev, file, value)
}

// Udev returns the values of a disk in udev's database.
func (n NodeDisks) Udev(d *storage.DiskInfo) (iocost.Known, error) {
	s, err := storage.ReadCostSolution(n.UdevData, d.Dev)
	if err != nil || s == nil {
		return iocost.Known{}, err
	}
	return iocost.Known{Model: &s.Model, QOS: &s.QOS}, nil
}

// Calibration returns the measured values of a disk.
func (n NodeDisks) Calibration(d *storage.DiskInfo) (iocost.Known, error) {
	c, err := calibrate.Load(n.CalibrationDir, d)
	if err != nil || c == nil {
		return iocost.Known{}, err
	}
	return iocost.Known{Model: &c.Model, QOS: &c.QOS, Limits: c.Limits()}, nil
}

// lingerFor is how long io.cost stays enabled on a disk after the last container with a weight. The
// kernel stops the queue of a disk to enable io.cost, and to disable it. Jobs that run one after
// the other would have it do so with each of them.
const lingerFor = 20 * time.Second

// recent has the disks that something with a weight uses, or has used lately.
type recent map[blkio.Disk]use

// use is the use of a disk by something with a weight.
type use struct {
	at time.Time // when it was last seen
	// identity is the identity of the disk when it was last listed, "" before that and if it is unknown.
	identity string
}

// disks takes up a demand, and returns the disks on which weights count, sorted by number.
func (r recent) disks(now time.Time, d *Demand) []blkio.Disk {
	for _, disk := range d.Cleared {
		delete(r, disk)
	}
	for i := range d.Weighted {
		for _, disk := range d.Weighted[i].Disks {
			r[disk] = use{now, r[disk].identity}
		}
	}
	maps.DeleteFunc(r, func(_ blkio.Disk, u use) bool { return now.Sub(u.at) >= lingerFor })
	return r.sorted()
}

// identify takes up the disks of the node, and returns those on which weights count. A disk that has
// come in the place of another one, with its number and name, has not been used lately.
func (r recent) identify(now time.Time, disks []storage.DiskInfo) []blkio.Disk {
	for i := range disks {
		disk, is := disks[i].Disk, identity(&disks[i])
		switch u, found := r[disk]; {
		case !found:
		case !u.at.Equal(now) && u.identity != "" && u.identity != is:
			delete(r, disk)
		default:
			r[disk] = use{u.at, is}
		}
	}
	return r.sorted()
}

func (r recent) sorted() []blkio.Disk {
	return slices.SortedFunc(maps.Keys(r), func(a, b blkio.Disk) int { return cmp.Or(a.Dev.Compare(b.Dev), cmp.Compare(a.Name, b.Name)) })
}
