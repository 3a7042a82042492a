package calibrate

import (
	"math"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
)

const (
	// slack is how much longer than at 90 % of the disk's rate an operation may take before
	// io.cost regards the disk as saturated. The kernel's own tool, iocost_coef_gen.py, has 1.5.
	slack = 1.25
	// The percentile is the median: io.cost's period is 10 times its latency target then, and 2
	// times with a percentile of 90 or more.
	percentile = blkio.Percent(5000)
	periods    = 10
	// minRate bounds the lower end of vrate, in percent. Less would leave most of the disk idle
	// after a moment of bad latencies.
	minRate = 60
)

// qos proposes latency targets, and bounds of vrate, the percentage of the model's rate at which io.cost works
// the disk. Min is the lowest rate of the disk at times, in percent of its average. While half of the
// operations miss their target, io.cost lowers vrate down to Min.
//
// Max is 100, though the model charges some block sizes too much. Above it, io.cost raises vrate until the
// disk's own queue is full, and lowers it too late. Weights of 200 and 300 gave 45 and 55 % of direct reads of
// 4 KiB then, and 89 % of the disk's rate.
func (m *Measurement) qos(of blkio.CostModel) blkio.CostQOS {
	lowest := m.Reads.Lowest
	q := blkio.CostQOS{RPct: percentile, RLat: m.Reads.target(of), Max: 10000}
	if m.Writes != nil {
		q.WPct, q.WLat = percentile, m.Writes.target(of)
		lowest = min(lowest, m.Writes.Lowest, m.Mixed)
	}
	q.Min = blkio.Percent(math.Round(min(max(100*lowest, minRate), 100))) * 100
	return q
}

// target returns the latency that half of the operations must not exceed. It is large enough to give io.cost a
// period in which weights have their effect.
func (d *Direction) target(of blkio.CostModel) time.Duration {
	target := time.Duration(slack * float64(d.Relaxed.P50))
	return max(target, diskmodel.Period(of)/periods).Round(time.Microsecond)
}
