package shares

import (
	"github.com/nri-blkio/nri-blkio/blkio"
)

// control is a control file of weights.
type control struct {
	file string
	// attribute has the disks whose weights a Keeper has set. It is "" for bfq: those of its disks count as set by a Keeper.
	attribute string
	disks     []blkio.Dev // of the last pass
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
func ofBFQ(write Write) *control {
	return &control{file: blkio.IOBFQWeight, write: write, most: 1000, ofContainers: true, usage: blkio.Stat.Bytes}
}

// With returns the result of a pass with that of another one on some disks.
func (r Result) With(other Result, disks []blkio.Dev) Result {
	if r.Shares == nil {
		return other
	}
	for _, dev := range disks {
		r.Shares[dev], r.Used[dev] = other.Shares[dev], other.Used[dev]
		if other.Squeezed[dev] {
			r.Squeezed[dev] = true
		}
		if err := other.Failed[dev]; err != nil {
			r.Failed[dev] = err
		}
	}
	return r
}
