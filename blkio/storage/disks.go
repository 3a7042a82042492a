package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

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
