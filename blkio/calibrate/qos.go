package calibrate

import (
	"math"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
)

const (
	// slack is how much longer than at 90 % of the disk's rate an operation may take before
	// io.cost regards the disk as saturated. The kernel's own tool, iocost_coef_gen.py, has 1.5,
	// which leaves room in the disk's queue for the operations of a neighbour.
	slack = 1.25
	// least is the smallest latency target, in operations of the disk: one that is served, and
	// half of another one. With a smaller target a disk that serves one after the other would
	// never meet it; with a larger one its queue has room for the operations of a neighbour.
	least = 1.5
	// io.cost compares the percentiles once in a period, which is a multiple of the latency
	// target. misses is how many operations of a period have to be allowed to be late at least:
	// with fewer, the percentile is decided by chance.
	misses = 1.5
	// minRate and maxRate bound the lower end of vrate, in percent. Less than minRate would leave
	// most of the disk idle after a moment of bad latencies. With more than maxRate, which leaves
	// 2 % for errors of the measurement, the disk's own queue would fill up.
	minRate, maxRate = 60, 98
)

// targets are the percentiles to choose from, the best first, with the factor of the period
// (ioc_refresh_period_us in block/blk-iocost.c) and the value that was measured.
var targets = [...]struct {
	percent blkio.Percent
	periods float64
	of      func(Latency) time.Duration
}{
	{9500, 2, func(l Latency) time.Duration { return l.P95 }},
	{7500, 5, func(l Latency) time.Duration { return l.P75 }},
	{5000, 10, func(l Latency) time.Duration { return l.P50 }},
} // constant

// qos proposes latency targets, and bounds of vrate, the percentage of the model's rate at which
// io.cost works the disk. The disk meets the targets as long as its own queue is short. While it
// does, and a cgroup waits, io.cost raises vrate up to Max; otherwise it lowers vrate down to Min.
//
// The model never charges too little, so Max is what is left of the disk where it charges too
// much, and where reads and writes do not share the disk. Min is how much slower than on average
// the disk was at times.
func (m *Measurement) qos(fit diskmodel.Fit) blkio.CostQOS {
	headroom, lowest := fit.Headroom, m.Reads.Lowest
	q := blkio.CostQOS{}
	q.RPct, q.RLat = m.Reads.target()
	if m.Writes != nil {
		q.WPct, q.WLat = m.Writes.target()
		headroom, lowest = max(headroom, m.Mixed), min(lowest, m.Writes.Lowest, m.Mixed)
	}
	q.Min = percent(min(max(100*lowest, minRate), maxRate))
	q.Max = percent(100 * headroom)
	return q
}

// percent rounds to whole percents, which is what the measurement is good for.
func percent(p float64) blkio.Percent {
	return blkio.Percent(math.Round(p)) * 100
}

// target returns a percentile and the latency that it is not to exceed.
func (d *Direction) target() (blkio.Percent, time.Duration) {
	rate := d.Random[0].IOPS
	var latency time.Duration
	for _, t := range targets {
		seconds := max(slack*t.of(d.Relaxed).Seconds(), least/rate)
		latency = time.Duration(math.Round(seconds*1e6)) * time.Microsecond
		if rate*t.periods*seconds*(1-float64(t.percent)/10000) >= misses {
			return t.percent, latency
		}
	}
	return targets[len(targets)-1].percent, latency
}
