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

// Curve returns the rate of random operations over all block sizes.
func (d *Direction) Curve() (diskmodel.Curve, error) { return diskmodel.FitCurve(d.Random) }

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
