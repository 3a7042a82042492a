package shares

import (
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// control is a control file of weights.
type control struct {
	file string
	// attribute has the disks whose weights a Keeper has set. It is "" for bfq: those of its disks count as set by a Keeper.
	attribute string
	disks     []blkio.Dev // with bfq
	write     Write
	most      float64 // the largest weight; the smallest is 1, and the default 100
	// ofContainers is true if a Keeper sets the weights of containers as well. In io.weight they are settings of their own.
	ofContainers bool
	// usage returns the use of a disk by a cgroup, in any unit.
	usage func(blkio.Stat) uint64
}

func ofCost(write Write) *control {
	return &control{
		file: blkio.IOWeight, attribute: Attribute, write: write, most: blkio.MaxWeight,
		usage: func(s blkio.Stat) uint64 { return s.CostUsage },
	}
}

// ofBFQ returns io.bfq.weight. bfq divides the bytes of a disk.
//
// Source: BFQ_MAX_WEIGHT in block/bfq-iosched.h.
func ofBFQ(write Write, disks []blkio.Dev) *control {
	return &control{file: blkio.IOBFQWeight, disks: disks, write: write, most: 1000, ofContainers: true, usage: blkio.Stat.Bytes}
}

// passBFQ makes a pass over the disks with bfq, and adds its result. Once the disks change, it begins anew: the kernel has no weights on a
// disk that has been given to bfq again.
func (k *Keeper) passBFQ(now time.Time, d Demand, out *Result) error {
	if k.bfq == nil || !slices.Equal(d.BFQ, k.bfq.control.disks) {
		k.bfq = &Keeper{cgroups: k.cgroups, control: ofBFQ(k.control.write, slices.Clone(d.BFQ))}
	}
	d.Disks = k.bfq.control.disks
	r, err := k.bfq.pass(now, d)
	if out.Shares == nil { // the tree could not be read
		return err
	}
	for _, dev := range d.Disks {
		out.Shares[dev], out.Used[dev], out.Failed[dev] = r.Shares[dev], r.Used[dev], r.Failed[dev]
		if r.Squeezed[dev] && out.Squeezed != nil {
			out.Squeezed[dev] = true
		}
	}
	return err
}
