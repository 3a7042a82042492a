package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// DiskInfo describes a disk: its name, drive, queue and size.
type DiskInfo struct {
	blkio.Disk
	Drive
	Queue
	Size uint64 // bytes
	// Seq is the number of the disk in the order in which the disks of the node came since its
	// start; 0 before Linux 5.15. Another disk, or another medium, with the same device number
	// has another one. It is the file diskseq (Documentation/ABI/stable/sysfs-block).
	Seq        uint64
	ReadOnly   bool
	Below      []blkio.Disk // for a dm or md device, the disks directly below
	Partitions []blkio.Disk // the kernel accepts no limits for their numbers
}

// Drive identifies a drive, or a volume of a cloud, by properties that stay when its name changes.
type Drive struct {
	Model  string // of a dm device its name, of an md device its level, of a loop device its file
	Serial string // "" if the kernel has none
	WWID   string // the same
}

// Queue describes how I/O waits for a disk.
type Queue struct {
	Rotational bool
	// RequestBased is true if I/O waits as requests (blk-mq). io.cost and io.latency work on such
	// disks only: not on dm and md devices, zram, and the head of an NVMe multipath disk.
	RequestBased bool
	Scheduler    string // "mq-deadline", "bfq", "none"
	LowLatency   string // of bfq: "0", or "1" by default
}

// Disks returns all whole disks, sorted by number. It leaves out hidden ones, which are the
// paths of NVMe multipath disks and have no number. It also leaves out those without a
// size, such as unused loop, zram and nbd devices, and empty card readers.
func (s Sysfs) Disks() ([]DiskInfo, error) {
	entries, err := fs.ReadDir(s.fsys, "block")
	if err != nil {
		return nil, fmt.Errorf("list disks: %w", err)
	}
	var out []DiskInfo
	for _, e := range entries {
		info, ok, err := s.diskInfo("block/" + e.Name())
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, blkio.ErrNoDevice) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("list disks: %w", err)
		}
		if ok {
			out = append(out, info)
		}
	}
	slices.SortFunc(out, func(a, b DiskInfo) int { return a.Dev.Compare(b.Dev) })
	return out, nil
}

// sectorSize is the unit of sizes in sysfs, independent of the disk's own sectors.
const sectorSize = 512

func (s Sysfs) diskInfo(dir string) (DiskInfo, bool, error) {
	if s.text(dir+"/hidden") == "1" {
		return DiskInfo{}, false, nil
	}
	disk, err := s.disk(dir)
	if err != nil {
		return DiskInfo{}, false, err
	}
	info := DiskInfo{
		Disk: disk,
		Drive: Drive{
			Model:  s.first(dir, "device/model", "dm/name", "md/level", "loop/backing_file"),
			Serial: s.first(dir, "serial", "device/serial"),
			WWID:   s.first(dir, "wwid", "device/wwid", "dm/uuid"),
		},
		Queue: Queue{
			Rotational:   s.text(dir+"/queue/rotational") == "1",
			RequestBased: s.exists(dir + "/mq"), // blk_mq_sysfs_register in block/blk-mq-sysfs.c makes it
			Scheduler:    activeScheduler(s.text(dir + "/queue/scheduler")),
			LowLatency:   s.text(dir + "/queue/iosched/low_latency"),
		},
		Size:     s.count(dir+"/size") * sectorSize,
		Seq:      s.count(dir + "/diskseq"),
		ReadOnly: s.text(dir+"/ro") == "1",
	}
	if info.Size == 0 {
		return DiskInfo{}, false, nil
	}
	if info.Below, err = s.slaves(dir); err != nil {
		return DiskInfo{}, false, err
	}
	info.Partitions, err = s.partitions(dir)
	return info, err == nil, err
}

// first returns the text of the first file that has one.
func (s Sysfs) first(dir string, names ...string) string {
	for _, name := range names {
		if text := s.text(dir + "/" + name); text != "" {
			return text
		}
	}
	return ""
}

func (s Sysfs) exists(name string) bool {
	_, err := fs.Stat(s.fsys, name)
	return err == nil
}

func (s Sysfs) partitions(dir string) ([]blkio.Disk, error) {
	entries, err := fs.ReadDir(s.fsys, dir)
	if err != nil {
		return nil, err
	}
	found := make(map[blkio.Dev]blkio.Disk)
	for _, e := range entries {
		sub := dir + "/" + e.Name()
		if !e.IsDir() || !s.isPartition(sub) {
			continue
		}
		d, err := s.disk(sub)
		if errors.Is(err, blkio.ErrNoDevice) {
			continue // removed meanwhile, as when the partition table is read again
		}
		if err != nil {
			return nil, err
		}
		found[d.Dev] = d
	}
	if len(found) == 0 {
		return nil, nil
	}
	return sortedDisks(found), nil
}

// activeScheduler picks the one in brackets of "none [mq-deadline] bfq". A
// device that has no choice reads as "none".
func activeScheduler(s string) string {
	if _, rest, ok := strings.Cut(s, "["); ok {
		s, _, _ = strings.Cut(rest, "]")
	}
	return s
}

// SetQueue writes a file of a disk's queue, such as "scheduler", below the directory where sysfs is mounted. The kernel waits for the
// requests of the disk that are under way before it changes the scheduler, and loads the module of a new one.
//
// Source: elv_iosched_load_module in block/elevator.c.
func SetQueue(sysfs string, dev blkio.Dev, file, value string) error {
	f, err := os.OpenFile(filepath.Join(sysfs, "dev/block", dev.String(), "queue", file), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(value)
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("set queue/%s to %s: %w%s", file, value, err, remedy(err))
}

func remedy(err error) string {
	switch {
	case errors.Is(err, unix.EINVAL):
		return " (the kernel does not have it)"
	case errors.Is(err, unix.EROFS):
		return " (in a pod, set schedulers: true in the values of the chart; to give up bfq, first remove weights: bfq from the node policy, and this value later)"
	}
	return ""
}

// DiskStat counts the I/O of a disk since it appeared.
type DiskStat struct {
	Reads, Writes           uint64 // operations completed
	ReadBytes, WrittenBytes uint64
	Active                  time.Duration // with operations in flight
}

// Sub returns the I/O since an earlier time.
func (s DiskStat) Sub(earlier DiskStat) DiskStat {
	s.Reads -= earlier.Reads
	s.Writes -= earlier.Writes
	s.ReadBytes -= earlier.ReadBytes
	s.WrittenBytes -= earlier.WrittenBytes
	s.Active -= earlier.Active
	return s
}

// ReadDiskStat reads the counters of a disk. The error is ErrNoDevice if the disk does not exist
// any more.
func (s Sysfs) ReadDiskStat(dev blkio.Dev) (DiskStat, error) {
	dir, err := s.directory(dev)
	if err != nil {
		return DiskStat{}, err
	}
	data, err := fs.ReadFile(s.fsys, path.Join(dir, "stat"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) { // it is being removed
		return DiskStat{}, fmt.Errorf("read the counters of %s: %w", dev, blkio.ErrNoDevice)
	}
	if err != nil {
		return DiskStat{}, fmt.Errorf("read the counters of %s: %w", dev, err)
	}
	stat, err := parseDiskStat(string(data))
	if err != nil {
		return DiskStat{}, fmt.Errorf("parse %s/stat: %w", dir, err)
	}
	return stat, nil
}

// parseDiskStat parses stat of a disk. Later kernels have more columns, which count discards and
// flushes.
//
//	 446216   784926   9550688  4382310   424847   312726  5922052  19310380  0    3376340  23705160
//	(reads)  (merged) (sectors) (ms)     (writes) (merged) (sectors) (ms)    (now) (ms)     (ms, weighted)
//
// Source: Documentation/block/stat.rst. A sector has 512 bytes.
func parseDiskStat(line string) (DiskStat, error) {
	const columns = 11
	fields := strings.Fields(line)
	if len(fields) < columns {
		return DiskStat{}, fmt.Errorf("%d columns, not %d or more", len(fields), columns)
	}
	var n [columns]uint64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseUint(fields[i], 10, 64); err != nil {
			return DiskStat{}, fmt.Errorf("column %d: %w", i+1, err)
		}
	}
	return DiskStat{
		Reads: n[0], ReadBytes: n[2] * sectorSize, Writes: n[4], WrittenBytes: n[6] * sectorSize,
		Active: time.Duration(n[9]) * time.Millisecond,
	}, nil
}
