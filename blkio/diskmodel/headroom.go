package diskmodel

import (
	"math"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// modelRate is the part of a disk's rates that a model for io.cost has. At the full rate the disk's own queue
// fills up as fast as io.cost's, and decides instead of the weights. Weights of 200 and 300 gave 46 and 54
// % of direct writes with a model of exactly the measured rates, and 40 and 60 % with 97 % of them.
const modelRate = 0.97

// WithHeadroom returns the model for io.cost from the rates of a disk.
func WithHeadroom(m blkio.CostModel) blkio.CostModel {
	scaled := func(rate, least uint64) uint64 { return max(least, uint64(math.Round(modelRate*float64(rate)))) }
	return blkio.CostModel{ // the kernel takes no model of less than a page in a second
		Rbps: scaled(m.Rbps, 4096), RSeqIOPS: scaled(m.RSeqIOPS, 1), RRandIOPS: scaled(m.RRandIOPS, 1),
		Wbps: scaled(m.Wbps, 4096), WSeqIOPS: scaled(m.WSeqIOPS, 1), WRandIOPS: scaled(m.WRandIOPS, 1),
	}
}
