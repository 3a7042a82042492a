package report

import (
	"bytes"
	"cmp"
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

func writeMeasurements(out *bytes.Buffer, d *storage.DiskInfo, c *calibrate.Calibration) {
	var text bytes.Buffer
	fmt.Fprintf(&text, "disk %s, model %s, serial number %s, %s, calibrated %s\n\n", d.Name, terminal.Escape(cmp.Or(c.Disk.Model, "-")), terminal.Escape(cmp.Or(c.Disk.Serial, "-")), terminal.Bytes(c.Disk.Size), c.At.Format(time.RFC3339))
	writeRates(&text, c)
	fmt.Fprintf(&text, "\nThe linear model differs from the measured rates by up to %.0f %%, on average by %.0f %%.\n", 100*c.Fit.Max, 100*c.Fit.Mean)
	if l := c.Limits(); l != nil {
		fmt.Fprintf(&text, "The disk has a limit of %s operations/s and one of %s/s. With --save, the model follows the mix of I/O.\n", rateText(l.Ops), terminal.Bytes(uint64(l.Bytes)))
	}
	for line := range strings.Lines(text.String()) {
		out.WriteString(strings.TrimRight("# "+strings.TrimSuffix(line, "\n"), " ") + "\n")
	}
}

// writeRates writes a row for each block size, with operations per second.
func writeRates(out *bytes.Buffer, c *calibrate.Calibration) {
	header, columns := []string{"OPERATIONS/S", "SEQUENTIAL READS", "RANDOM READS"}, [][]diskmodel.Point{c.Reads.Sequential, c.Reads.Random}
	if c.Writes != nil {
		header, columns = append(header, "SEQUENTIAL WRITES", "RANDOM WRITES"), append(columns, c.Writes.Sequential, c.Writes.Random)
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

// rateText formats a rate with three digits, because it is not more exact than that.
func rateText(rate float64) string {
	unit := math.Pow(10, max(0, math.Floor(math.Log10(rate))-2))
	return strconv.FormatFloat(math.Round(rate/unit)*unit, 'f', 0, 64)
}
