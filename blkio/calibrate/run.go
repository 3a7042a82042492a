package calibrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// Config is the configuration of a calibration.
type Config struct {
	Node *Node
	Disk *storage.DiskInfo
	// Device is the path of the disk's device file, as this process sees it.
	Device string
	// WriteDir is a directory on the disk for a file that is written; nil for no writes.
	WriteDir *Dir
	// Force measures a busy disk.
	Force    bool
	Progress Progress
}

// deadline is how long a calibration takes at most.
const deadline = 60 * time.Second

var errDeadline = fmt.Errorf("not done within %v: the disk is too slow, or does not answer", deadline)

// BusyError is the error for a disk with other users, which would distort its measurement.
type BusyError struct {
	Disk    string
	Reasons []string
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("calibrate disk %s: %s (add --force to calibrate anyway)", e.Disk, strings.Join(e.Reasons, "; "))
}

// Run calibrates a disk. It ends within a second of the end of ctx, and leaves no file on the disk. The error
// is a BusyError if the disk is busy, and ErrLocked if it is being calibrated.
func Run(ctx context.Context, cfg Config) (*Calibration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, deadline, errDeadline)
	defer cancel()
	disk, err := openDisk(ctx, cfg.Device, cfg.Disk.Disk)
	if err != nil {
		return nil, err
	}
	defer disk.Close()
	return cfg.calibrate(ctx, disk)
}

// calibrate calibrates an open disk.
func (cfg *Config) calibrate(ctx context.Context, disk io.ReaderAt) (*Calibration, error) {
	cfg.Progress(0, "looking whether the disk is busy")
	reasons, err := cfg.Node.obstacles(ctx, cfg.Disk)
	if err != nil {
		return nil, cfg.missing(err)
	}
	if len(reasons) > 0 && !cfg.Force {
		return nil, &BusyError{cfg.Disk.Name, reasons}
	}
	m, foreign, err := cfg.measure(ctx, disk)
	if err != nil {
		return nil, cfg.missing(err)
	}
	c, err := New(IdentityOf(cfg.Disk), time.Now(), m)
	if err != nil {
		return nil, err
	}
	for _, reason := range reasons {
		c.Warnings = append(c.Warnings, Warning{Text: reason, Implausible: true})
	}
	c.Warnings = append(c.Warnings, foreign...)
	return c, nil
}

// missing adds to an error that the disk does not exist any more, if that is so.
func (cfg *Config) missing(err error) error {
	if _, statErr := cfg.Node.Sysfs.ReadDiskStat(cfg.Disk.Dev); errors.Is(statErr, blkio.ErrNoDevice) {
		return fmt.Errorf("disk %s disappeared during the calibration: %w", cfg.Disk.Name, err)
	}
	return err
}

// measure measures the disk, and compares the disk's own counters with the submitted operations.
func (cfg *Config) measure(ctx context.Context, disk io.ReaderAt) (*Measurement, []Warning, error) {
	count := &counter{disk: disk}
	s := Source{Disk: count, Size: int64(cfg.Disk.Size), CPUTime: processorTime}
	if cfg.WriteDir != nil {
		cfg.Progress(0, "writing a file")
		f, err := createFile(ctx, cfg.WriteDir, mostFile)
		if err != nil {
			return nil, nil, err
		}
		defer f.Close()
		count.file = f
		s.File, s.FileSize = count, f.size
	}
	before, err := cfg.Node.Sysfs.ReadDiskStat(cfg.Disk.Dev)
	if err != nil {
		return nil, nil, err
	}
	m, err := Measure(ctx, s, cfg.Progress)
	if err != nil {
		return nil, nil, err
	}
	after, err := cfg.Node.Sysfs.ReadDiskStat(cfg.Disk.Dev)
	if err != nil {
		return nil, nil, err
	}
	return m, count.compare(after.Sub(before)), nil
}

// counter counts the bytes that are read and written.
type counter struct {
	disk          io.ReaderAt
	file          io.WriterAt
	read, written atomic.Uint64
}

func (c *counter) ReadAt(block []byte, offset int64) (int, error) {
	n, err := c.disk.ReadAt(block, offset)
	c.read.Add(uint64(n))
	return n, err
}

func (c *counter) WriteAt(block []byte, offset int64) (int, error) {
	n, err := c.file.WriteAt(block, offset)
	c.written.Add(uint64(n))
	return n, err
}

// differs is the part of bytes by which the disk's counters may differ.
const differs = 0.05

// compare returns warnings if the disk's counters differ from the submitted operations.
func (c *counter) compare(done storage.DiskStat) (out []Warning) {
	own := float64(c.read.Load() + c.written.Load())
	all := float64(done.ReadBytes + done.WrittenBytes)
	if all > own*(1+differs) {
		out = append(out, Warning{Text: fmt.Sprintf("%.0f %% of the bytes that the disk transferred meanwhile were those of other programs: calibrate again while it is idle", 100*(1-own/all)), Implausible: true})
	}
	if written := float64(c.written.Load()); float64(done.WrittenBytes) < written*(1-differs) {
		out = append(out, Warning{Text: fmt.Sprintf("only %.0f %% of the bytes written have reached the disk: the filesystem of --write-dir does not write directly, or is on another disk", 100*float64(done.WrittenBytes)/written), Implausible: true})
	}
	return out
}
