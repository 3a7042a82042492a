package fakenode

import "github.com/nri-blkio/nri-blkio/blkio"

// RandomOps is what random operations of one direction cost by a model of io.cost. Each operation costs the disk a time, and so does each of
// its pages.
type RandomOps struct {
	Base, Page float64 // seconds
}

// IOPS returns the operations per second at which io.cost has given out 100 % of the model.
//
// Source: calc_vtime_cost_builtin in block/blk-iocost.c.
func (l RandomOps) IOPS(size int) float64 { return 1 / (l.Base + float64(max(1, size/4096))*l.Page) }

// RandomOf returns the costs of random operations by a model that passes [blkio.CostModel.Check].
//
// Source: calc_lcoefs in block/blk-iocost.c.
func RandomOf(m blkio.CostModel) (reads, writes RandomOps) {
	of := func(bps, iops uint64) RandomOps {
		perPage := 4096 / float64(bps)
		return RandomOps{Base: max(0, 1/float64(iops)-perPage), Page: perPage}
	}
	return of(m.Rbps, m.RRandIOPS), of(m.Wbps, m.WRandIOPS)
}
