package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/nri-blkio/nri-blkio/blkio/calibrate"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Calibration is the result of calibrate.
type Calibration struct {
	Name        string                 `json:"name"` // of the disk
	Calibration *calibrate.Calibration `json:"calibration"`
	Policy      json.RawMessage        `json:"policy"` // a fragment of a node policy, with the model of the disk
	// Limits are those towards which a saved model follows the mix of I/O; nil if the measurements do not show them.
	Limits *diskmodel.Limits `json:"limits,omitempty"`

	disk     *storage.DiskInfo
	fragment string // Policy, in the form of a policy file
}

// NewCalibration returns the result for a disk, with the rule that gives it the calibrated model in a node policy.
func NewCalibration(d *storage.DiskInfo, c *calibrate.Calibration) (*Calibration, error) {
	fragment := policy.FormatRule(policy.Disk{Name: d.Name, Model: d.Model}, c.Model, c.QOS)
	asJSON, err := yaml.YAMLToJSON([]byte(fragment))
	if err != nil {
		return nil, err // not reached: the fragment is YAML
	}
	return &Calibration{Name: d.Name, Calibration: c, Policy: asJSON, Limits: c.Limits(), disk: d, fragment: fragment}, nil
}

// Write writes the measurements and the fragment of a policy. The text is a valid fragment as a whole, because the
// measurements are in comments.
func (c *Calibration) Write(out *bytes.Buffer) {
	writeMeasurements(out, c.disk, c.Calibration)
	out.WriteString(c.fragment)
}

// writeMeasurements writes the measurements as comments of YAML.
func writeMeasurements(out *bytes.Buffer, d *storage.DiskInfo, c *calibrate.Calibration) {
	var text bytes.Buffer
	fmt.Fprintf(&text, "disk %s, model %s, serial number %s, %s, calibrated %s\n\n", d.Name, orDash(c.Disk.Model), orDash(c.Disk.Serial), terminal.Bytes(c.Disk.Size), c.At.Format(time.RFC3339))
	writeRates(&text, c)
	text.WriteByte('\n')
	writeDepths(&text, c)
	fmt.Fprintf(&text, "\nThe linear model differs from the measured rates by up to %.0f %%, on average by %.0f %%.\n", 100*c.Fit.Max, 100*c.Fit.Mean)
	if l := c.Limits(); l != nil {
		fmt.Fprintf(&text, "The disk has a limit of %s operations/s and one of %s/s. With --save, the model follows the mix of I/O.\n", rateText(l.Ops), terminal.Bytes(uint64(l.Bytes)))
	}
	for line := range strings.Lines(text.String()) {
		out.WriteString(strings.TrimRight("# "+strings.TrimSuffix(line, "\n"), " ") + "\n")
	}
}

// directions returns the measured directions by name.
func directions(c *calibrate.Calibration) map[string]*calibrate.Direction {
	out := map[string]*calibrate.Direction{"READS": &c.Reads}
	if c.Writes != nil {
		out["WRITES"] = c.Writes
	}
	return out
}

// writeRates writes a row for each block size, with operations per second.
func writeRates(out *bytes.Buffer, c *calibrate.Calibration) {
	header := []string{"OPERATIONS/S"}
	var columns [][]diskmodel.Point
	for _, name := range []string{"READS", "WRITES"} {
		if d := directions(c)[name]; d != nil {
			header = append(header, "SEQUENTIAL "+name, "RANDOM "+name)
			columns = append(columns, d.Sequential, d.Random)
		}
	}
	t := terminal.NewTable(out, header...)
	for i, p := range c.Reads.Sequential {
		row := []string{terminal.Bytes(uint64(p.Size))}
		for _, points := range columns {
			row = append(row, rateText(points[i].IOPS))
		}
		t.Row(row...)
	}
	t.Flush()
}

// writeDepths writes a row for each queue depth, and one for 90 % of the rate.
func writeDepths(out *bytes.Buffer, c *calibrate.Calibration) {
	t := terminal.NewTable(out, "RANDOM 4K", "QUEUE DEPTH", "OPERATIONS/S", "P50", "P95", "P99")
	for _, name := range []string{"READS", "WRITES"} {
		d := directions(c)[name]
		if d == nil {
			continue
		}
		row := func(depth string, rate float64, l calibrate.Latency) {
			t.Row(name, depth, rateText(rate), latencyText(l.P50), latencyText(l.P95), latencyText(l.P99))
		}
		for _, depth := range d.Depths {
			row(strconv.Itoa(depth.Depth), depth.IOPS, depth.Latency)
		}
		row("at 90 %", 0.9*d.Random[0].IOPS, d.Relaxed)
	}
	t.Flush()
}

// rateText formats a rate with three digits, because it is not more exact than that.
func rateText(rate float64) string {
	unit := math.Pow(10, max(0, math.Floor(math.Log10(rate))-2))
	return strconv.FormatFloat(math.Round(rate/unit)*unit, 'f', 0, 64)
}

func latencyText(d time.Duration) string { return d.Round(time.Microsecond).String() }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return terminal.Escape(s)
}
