// Package calibrate measures how fast a disk is, and derives io.cost's model and latency targets from that. It
// reads the raw disk, and writes to a file on it that has no name.
//
// The rates count operations that this package submits one by one to the disk, from a number of threads: the
// queue depth. All sizes are bytes, all rates are per second.
package calibrate

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
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

// Identity identifies a disk by properties that stay when its name changes. A cloud's volume that was resized
// is another disk, because its rates often depend on its size.
type Identity struct {
	Serial string `json:"serial,omitempty"`
	WWID   string `json:"wwid,omitempty"`
	Model  string `json:"model,omitempty"`
	Size   uint64 `json:"size"` // bytes
}

// IdentityOf returns the identity of a disk.
func IdentityOf(d *storage.DiskInfo) Identity {
	return Identity{Serial: validText(d.Serial), WWID: validText(d.WWID), Model: validText(d.Model), Size: d.Size}
}

// validText escapes bytes that are not UTF-8, which JSON would replace: a device can have any bytes
// there.
func validText(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// key returns the ID of the disk among others of the node, "" if it has none. A WWID belongs to one disk, while
// all namespaces of an NVMe controller have its serial number.
func (i Identity) key() string { return cmp.Or(i.WWID, i.Serial) }

// Check returns ErrNoIdentity for a disk whose calibration cannot be saved.
func (i Identity) Check() error {
	if i.key() == "" {
		return ErrNoIdentity
	}
	return nil
}

var (
	// ErrNoIdentity is the error for a disk without a serial number and without a WWID. After a restart of the
	// node it cannot be recognized.
	ErrNoIdentity = errors.New("the disk has neither a serial number nor a WWID")
	// ErrOtherDisk is the error for a saved calibration of a disk with the same WWID, or without one the same
	// serial number, that differs otherwise.
	ErrOtherDisk = errors.New("the saved calibration is of another disk")
)

// version is the version of the format of saved calibrations.
const version = 1

// saved is a calibration as it is saved, and as it is printed. The model and the targets are in
// the form of io.cost.model and io.cost.qos.
type saved struct {
	Version int    `json:"version"`
	Model   string `json:"model"`
	QOS     string `json:"qos"`
	fields
}

// fields has the fields of a Calibration, without its methods.
type fields Calibration

// MarshalJSON returns the form in which a calibration is saved.
func (c *Calibration) MarshalJSON() ([]byte, error) {
	return json.Marshal(saved{version, c.Model.String(), c.QOS.String(), fields(*c)})
}

// Save saves a calibration below a directory, in a file of the disk. A reader sees either the old
// or the new one as a whole.
func Save(dir string, c *Calibration) (file string, err error) {
	if file, err = fileOf(dir, c.Disk); err != nil {
		return "", err
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("save calibration: %w", err)
	}
	if err := replace(file, append(data, '\n')); err != nil {
		return "", fmt.Errorf("save calibration: %w", err)
	}
	return file, nil
}

// replace replaces a file, which survives a crash of the node from then on.
func replace(file string, data []byte) error {
	next := file + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(next, file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return nil
}

func fileOf(dir string, i Identity) (string, error) {
	if err := i.Check(); err != nil {
		return "", err
	}
	return filepath.Join(dir, fileName(i.key())+".json"), nil
}

// maxFileName leaves room for the suffixes of a file, in bytes.
const maxFileName = 200

// fileName returns a name for a file, which an identity is not: a device can have any text there, of
// any length.
func fileName(text string) string {
	var out strings.Builder
	for _, b := range []byte(text) {
		if b == '-' || b == '_' || '0' <= b && b <= '9' || 'A' <= b && b <= 'Z' || 'a' <= b && b <= 'z' {
			out.WriteByte(b)
		} else {
			fmt.Fprintf(&out, "%%%02X", b)
		}
	}
	if out.Len() <= maxFileName {
		return out.String()
	}
	return fmt.Sprintf("%s~%x", out.String()[:maxFileName/2], sha256.Sum256([]byte(text)))
}

// Load returns the calibration of a disk that was saved below a directory; nil if there is none. The error is
// ErrOtherDisk if the file belongs to another disk. If the content is invalid, the error names the file.
func Load(dir string, d *storage.DiskInfo) (*Calibration, error) {
	want := IdentityOf(d)
	file, err := fileOf(dir, want)
	if errors.Is(err, ErrNoIdentity) {
		return nil, nil
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("load calibration: %w", err)
	}
	defer f.Close()
	c, err := parse(f)
	if err != nil {
		return nil, fmt.Errorf("load calibration: parse %s: %w", file, err)
	}
	if c.Disk != want {
		return nil, fmt.Errorf("load calibration: %s: %w", file, ErrOtherDisk)
	}
	return c, nil
}

// maxSaved bounds a file before it is decoded, in bytes.
const maxSaved = 1 << 20

// parse decodes a saved calibration. An unknown field is an error, because it comes from another version and
// can change the meaning of the others.
func parse(r io.Reader) (*Calibration, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSaved+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxSaved {
		return nil, fmt.Errorf("larger than %d bytes", maxSaved)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var s saved
	if err := decoder.Decode(&s); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the calibration")
	}
	if s.Version != version {
		return nil, fmt.Errorf("version %d, not %d", s.Version, version)
	}
	return s.calibration()
}

// calibration parses the texts, and checks that a kernel takes them.
func (s *saved) calibration() (*Calibration, error) {
	c := Calibration(s.fields)
	var err error
	if c.Model, c.QOS, err = blkio.ParseCost(s.Model, s.QOS); err != nil {
		return nil, err
	}
	if c.Model.String() != s.Model || c.QOS.String() != s.QOS {
		return nil, errors.New("the model or the targets have not all values, in the kernel's order")
	}
	return &c, nil
}
