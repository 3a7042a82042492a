package diskmodel

import (
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

const (
	// operations is how many operations of a slow disk a period of io.cost has room for at least.
	operations = 64
	// A timer of the kernel can be late by 4 ms (HZ=250), which a period of a fast disk has to
	// outweigh. A period of a slow disk must not be longer than users notice.
	minPeriod = 10 * time.Millisecond
	maxPeriod = 500 * time.Millisecond
)

// Period returns the shortest period of io.cost ([blkio.CostQOS.Period]) with which weights have their effect
// on a disk with a model. With less time, a container that waits for one operation after the other has used
// nothing in many periods. io.cost takes it for idle then, and gives its share to others. On a disk with 1,500
// operations a second, weights of 200 and 300 gave 50 and 50 % with a period of 1 ms. They gave 40 and 60 %
// with 10 ms and more (Linux 6.12).
func Period(m blkio.CostModel) time.Duration {
	rate := max(1, min(m.RRandIOPS, m.WRandIOPS))
	period := operations * time.Second / time.Duration(rate)
	return min(max(period, minPeriod), maxPeriod).Truncate(2 * time.Microsecond)
}
