package calibrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
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

// leastSize is the smallest size of a disk with which its blocks can be read at random.
const leastSize = 64 << 20

// Find returns the disk with a name, such as "sdb", or with a path below /dev. If the name belongs to a
// partition, or to a device made of disks, the error names the disk to use.
func Find(ctx context.Context, s *storage.Storage, sys storage.Sysfs, name string) (*storage.DiskInfo, error) {
	node := name
	if !strings.HasPrefix(node, "/") {
		node = "/dev/" + node
	}
	dev, err := s.Node(node)
	if errors.Is(err, blkio.ErrNoDevice) {
		return nil, fmt.Errorf("find %q: %w", name, blkio.ErrNoDevice) // err has the name twice
	}
	if err != nil {
		return nil, fmt.Errorf("find %q: %w", name, err)
	}
	stack, err := sys.Stack()
	if err != nil {
		return nil, err
	}
	for i := range stack {
		if d := &stack[i]; d.Dev == dev {
			return &d.DiskInfo, unfitFor(ctx, s, d)
		}
	}
	return nil, fmt.Errorf("find %q: no medium in the drive, or a path of a multipath disk", name)
}

// unfitFor returns why a device cannot be calibrated, or nil.
func unfitFor(ctx context.Context, s *storage.Storage, d *storage.BlockDevice) error {
	below, err := s.Physical(d.Dev)
	if err != nil {
		return err
	}
	names := strings.Join(blkio.DiskNames(below), ", ")
	switch {
	case d.Kind == storage.KindPartition:
		return fmt.Errorf("%s is a partition: calibrate its disk, %s", d.Name, names)
	case d.Kind == storage.KindLoop:
		on := blkio.DiskNames(s.Under(ctx, d.Dev))
		if len(on) == 0 { // such as in memory, or on a network filesystem
			return fmt.Errorf("%s is a loop device, and its file is not on a known disk", d.Name)
		}
		return fmt.Errorf("%s is a loop device: calibrate the disk of its file (%s)", d.Name, strings.Join(on, ", "))
	case len(d.Below) > 0:
		return fmt.Errorf("%s is a device of kind %s: io.cost works on the disks below: calibrate %s", d.Name, d.Kind, names)
	case !d.RequestBased:
		return fmt.Errorf("%s cannot have io.cost: its driver has no queue of requests (blk-mq)", d.Name)
	case d.Size < leastSize:
		return fmt.Errorf("%s is too small (%d bytes, minimum %d)", d.Name, d.Size, leastSize)
	}
	return nil
}

// ErrLocked means that another process has locked the disk.
var ErrLocked = errors.New("another program has locked it, such as another calibration")

// openDisk opens the device file of a disk, read-only and with direct I/O, and locks it as
// https://systemd.io/BLOCK_DEVICE_LOCKING asks for.
func openDisk(ctx context.Context, node string, d blkio.Disk) (_ *os.File, err error) {
	f, err := os.OpenFile(node, unix.O_RDONLY|unix.O_DIRECT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open disk %s: %w", d.Name, err)
	}
	defer func() {
		if err != nil {
			f.Close() // it was only read
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("open disk %s: %w", d.Name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK || blkio.DevOf(st.Rdev) != d.Dev {
		return nil, fmt.Errorf("open disk %s: %s is not block device %s", d.Name, node, d.Dev)
	}
	if err := lock(ctx, f); err != nil {
		return nil, fmt.Errorf("lock disk %s: %w", d.Name, err)
	}
	return f, nil
}

const (
	lockTries = 5
	lockPause = 200 * time.Millisecond
)

// lock locks a file. udev locks a disk for a moment at each event.
func lock(ctx context.Context, f *os.File) error {
	for try := 1; ; try++ {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case !errors.Is(err, unix.EWOULDBLOCK):
			return err
		case try == lockTries:
			return ErrLocked
		}
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

const (
	// watchTime is the time for which the disk is watched before a calibration.
	watchTime = time.Second
	// A disk is busy from this rate on, or with operations in flight for this part of the time.
	busyRate, busyPart = 50, 0.1
)

// Node has the facts about the node's use of its disks.
type Node struct {
	Storage *storage.Storage
	Sysfs   storage.Sysfs
	Cgroups *cgroupfs.Hierarchy
	// Own is the path of this process's cgroup, as OwnCgroup returns it.
	Own string
}

// OwnCgroup returns the path of this process's cgroup, "." if it is not known.
func OwnCgroup() string {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "."
	}
	return cgroupOf(string(data))
}

// cgroupOf parses /proc/PID/cgroup. The path begins with ".." if the cgroup is outside of the reader's
// cgroup namespace, whose root is the only one that is mounted.
//
//	0::/system.slice/ssh.service
//
// Source: cgroup_namespaces(7).
func cgroupOf(data string) string {
	for line := range strings.Lines(data) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/"); ok && filepath.IsLocal(p) {
			return p
		}
	}
	return "."
}

func (n *Node) obstacles(ctx context.Context, d *storage.DiskInfo) (out []string, err error) {
	qos, err := n.Cgroups.ReadIOCostQOS()
	if err != nil && !errors.Is(err, blkio.ErrNotSupported) {
		return nil, err
	}
	if qos[d.Dev].Enabled {
		out = append(out, "io.cost is enabled on it, and would slow the calibration down")
	}
	for p := n.Own; ; {
		limits, err := n.Cgroups.Cgroup(p).ReadIOMax()
		// The root cgroup has no io.max, nor has a cgroup without the io controller. A cgroup that does not
		// exist here belongs to another tree.
		if err != nil && !errors.Is(err, blkio.ErrNotSupported) && !errors.Is(err, blkio.ErrGone) {
			return nil, fmt.Errorf("find the limits of this process: %w", err)
		}
		if _, isLimited := limits[d.Dev]; isLimited {
			out = append(out, "this process is limited on it, by io.max of its cgroup "+p)
		}
		cut := strings.LastIndexByte(p, '/')
		if cut <= 0 {
			break
		}
		p = p[:cut]
	}
	use, err := n.use(ctx, d)
	if use != "" {
		out = append(out, use)
	}
	return out, err
}

// use watches the disk, and describes how busy it is; "" if it is idle.
func (n *Node) use(ctx context.Context, d *storage.DiskInfo) (string, error) {
	before, err := n.Sysfs.ReadDiskStat(d.Dev)
	if err != nil {
		return "", err
	}
	start := time.Now()
	select {
	case <-time.After(watchTime):
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	after, err := n.Sysfs.ReadDiskStat(d.Dev)
	if err != nil {
		return "", err
	}
	seconds, delta := time.Since(start).Seconds(), after.Sub(before)
	rate, part := float64(delta.Reads+delta.Writes)/seconds, min(1, delta.Active.Seconds()/seconds)
	if rate < busyRate && part < busyPart {
		return "", nil
	}
	return fmt.Sprintf("it is busy: %.0f operations/s, %.0f %% of the time", rate, 100*part), nil
}
