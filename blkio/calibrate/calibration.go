// Package calibrate measures how fast a disk is, and derives io.cost's model and latency targets from that. It
// reads the raw disk, and writes to a file on it that has no name.
//
// The rates count operations that this package submits one by one to the disk, from a number of threads: the
// queue depth. All sizes are bytes, all rates are per second.
package calibrate

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
)

// Calibration has the results of a calibration of a disk.
type Calibration struct {
	Disk     Identity        `json:"disk"`
	At       time.Time       `json:"at"`
	Model    blkio.CostModel `json:"-"`
	QOS      blkio.CostQOS   `json:"-"`
	Fit      FitError        `json:"fit"`
	Warnings []Warning       `json:"warnings"`
	Measurement
}

// FitError is how far io.cost's linear model is from the measured rates: relative differences,
// 0.1 is 10 %.
type FitError struct {
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// New derives a calibration from a measurement.
func New(disk Identity, at time.Time, m *Measurement) (*Calibration, error) {
	writes := &m.Reads
	if m.Writes != nil {
		writes = m.Writes
	}
	fit, err := diskmodel.FitLinear(m.Reads.Measured, writes.Measured)
	if err != nil {
		return nil, fmt.Errorf("derive io.cost's model: %w", err)
	}
	c := &Calibration{
		Disk: disk, At: at.UTC().Truncate(time.Second), Measurement: *m,
		Model: diskmodel.WithHeadroom(fit.Model), QOS: m.qos(fit.Model), Fit: FitError{Max: fit.MaxError, Mean: fit.MeanError}, Warnings: m.warnings(),
	}
	if fit.MaxError > unfit {
		c.Warnings = append(c.Warnings, Warning{Text: fmt.Sprintf("io.cost's linear model charges up to %.0f %% more than the disk needs; a larger qos.max, up to %.0f, makes up for it, but the shares are less exact then", 100*(fit.Headroom-1), 100*fit.Headroom)})
	}
	if err := c.QOS.Check(); err != nil {
		return nil, fmt.Errorf("derive latency targets: %w", err)
	}
	return c, nil
}

// together is how far Mixed may be from 1 where reads and writes share the limits of a disk.
const together = 0.1

// Limits returns the limits of operations and of bytes, which reads and writes share. It is nil if the measured points
// do not show them, and without points of writes.
func (c *Calibration) Limits() *diskmodel.Limits {
	if c.Writes == nil || math.Abs(c.Mixed-1) > together || !c.IsPlausible() {
		return nil
	}
	return diskmodel.FindLimits(slices.Concat(c.Reads.Random, c.Writes.Random), slices.Concat(c.Reads.Sequential, c.Writes.Sequential))
}

// IsPlausible reports whether the disk itself can be as fast as it was measured.
func (c *Calibration) IsPlausible() bool {
	return !slices.ContainsFunc(c.Warnings, func(w Warning) bool { return w.Implausible })
}

// Warning is a doubt about a calibration.
type Warning struct {
	Text string `json:"text"`
	// Implausible is true if the disk itself cannot be as fast as it was measured.
	Implausible bool `json:"implausible"`
}

const (
	// fallen is the rate at the end, relative to that at the start, below which the disk has
	// become slower for a reason.
	fallen = 0.85
	// unsteady is the same for the lowest half of a load.
	unsteady = 0.75
	// fastest is less than any disk needs for a read.
	fastest = 5 * time.Microsecond
	// widest is more than any disk's interface transfers, in bytes per second.
	widest = 30e9
	// mostlyZeros is the part of blocks of zeros from which on it is the rate of such blocks
	// that was measured.
	mostlyZeros = 0.9
	// unfit is the error of the linear model from which on it is worth a warning.
	unfit = 0.3
)

func (m *Measurement) warnings() []Warning {
	out := m.Reads.warnings("reads")
	if m.Writes == nil {
		return append(out, Warning{Text: "writes were not measured: the model has the rates of reads for them"})
	}
	return append(out, m.Writes.warnings("writes")...)
}

func (d *Direction) warnings(name string) (out []Warning) {
	implausible := func(format string, args ...any) {
		out = append(out, Warning{Text: name + ": " + fmt.Sprintf(format, args...), Implausible: true})
	}
	if d.Last < fallen {
		implausible("the rate fell to %.0f %% during the calibration, as with burst credits or a cache: calibrate again when they are used up", 100*d.Last)
	} else if d.Lowest < unsteady {
		out = append(out, Warning{Text: fmt.Sprintf("%s: the rate fell to %.0f %% at times", name, 100*d.Lowest)})
	}
	if fast := d.Depths[0].Latency.P50; fast < fastest {
		implausible("half of the operations took less than %v: a cache in memory answers, not the disk", max(fast, time.Microsecond))
	} else if bps := d.largest(); bps > widest {
		implausible("%.0f GB/s is more than a disk transfers: a cache in memory answers, not the disk", bps/1e9)
	}
	if d.Zeros >= mostlyZeros {
		out = append(out, Warning{Text: fmt.Sprintf("%s: %.0f %% of the blocks have zeros only: a thin-provisioned or trimmed disk answers without its media where nothing was written", name, 100*d.Zeros)})
	}
	if d.CPUBound {
		implausible("the processors were the bottleneck, the disk is faster: calibrate while the node is idle")
	}
	return out
}

func (d *Direction) largest() (bps float64) {
	for _, p := range slices.Concat(d.Sequential, d.Random) {
		bps = max(bps, p.IOPS*float64(p.Size))
	}
	return bps
}

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
