package calibrate

import (
	"fmt"
	"slices"
	"time"
)

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

// warnings returns the doubts about a measurement.
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

// largest returns the largest throughput, in bytes per second.
func (d *Direction) largest() (bps float64) {
	for _, p := range slices.Concat(d.Sequential, d.Random) {
		bps = max(bps, p.IOPS*float64(p.Size))
	}
	return bps
}
