package diskmodel

import "github.com/nri-blkio/nri-blkio/blkio"

// Rates has the operations per second of a disk by the size of the blocks, in bytes. [Points] and a [Linear]
// implement it.
type Rates interface {
	IOPS(size int) float64
}

// Random has the rates of random operations.
type Random struct {
	Reads, Writes Rates
}

// Linear is one kind of operation in io.cost's model: each costs the disk a time, and so does
// each of its pages.
type Linear struct {
	Base, Page float64 // seconds
}

// IOPS returns the operations per second at which io.cost has given out 100 % of the model.
//
// Source: calc_vtime_cost_builtin in block/blk-iocost.c.
func (l Linear) IOPS(size int) float64 { return 1 / (l.Base + pagesOf(size)*l.Page) }

// RandomOf returns the rates of random operations in io.cost's model, which passes
// [blkio.CostModel.Check].
//
// Source: calc_lcoefs in block/blk-iocost.c.
func RandomOf(m blkio.CostModel) Random {
	of := func(bps, iops uint64) Linear {
		perPage := page / float64(bps)
		return Linear{Base: max(0, 1/float64(iops)-perPage), Page: perPage}
	}
	return Random{Reads: of(m.Rbps, m.RRandIOPS), Writes: of(m.Wbps, m.WRandIOPS)}
}
