package cgroupfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// WritebackStat counts the data that one cgroup has left to write on one bdi. A bdi is a
// disk, or a filesystem on several disks. A removed cgroup is listed as long as it owns an
// inode. The kernel counts bytes on each CPU and adds them up from time to time, so bytes
// are off by some dozen pages for each CPU. Inodes are exact.
type WritebackStat struct {
	CgroupID  uint64 // see Cgroup.ID
	Dirty     uint64 // bytes whose writeback has not started
	Writeback uint64 // bytes under writeback: on their way to the disk, or delayed by a limit
	Inodes    uint64 // dirty inodes
}

// Left returns the bytes left to write.
func (w WritebackStat) Left() uint64 { return w.Dirty + w.Writeback }

// ParseWritebackStats parses the file wb_stats of a bdi: one block of lines for each
// cgroup, in no order. A cgroup may have several blocks. Unknown lines are ignored.
//
//	WbCgIno:                 4208
//	WbWriteback:            59808 kB
//	WbReclaimable:         676480 kB
//	WbDirtyThresh:        6004624 kB
//	WbDirtied:           23348192 kB
//	WbWritten:           22614592 kB
//	WbWriteBandwidth:      593204 kBps
//	b_dirty:                    1
//	b_io:                       1
//	b_more_io:                  0
//	b_dirty_time:               0
//	state:                      7
//
// Source: wb_stats_show and cgwb_debug_stats_show in mm/backing-dev.c.
func ParseWritebackStats(r io.Reader) ([]WritebackStat, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read wb_stats: %w", err)
	}
	var out []WritebackStat
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		name, value, _ := strings.Cut(line, ":")
		if name == "WbCgIno" {
			out = append(out, WritebackStat{})
		}
		if len(out) == 0 {
			continue
		}
		if err := out[len(out)-1].set(name, strings.Fields(value)); err != nil {
			return nil, fmt.Errorf("parse wb_stats, line %d %.80q: %w", n, strings.TrimSpace(line), err)
		}
	}
	return out, nil
}

// set takes the value of one line.
func (w *WritebackStat) set(name string, value []string) error {
	switch name {
	case "WbCgIno":
		return parseCount(&w.CgroupID, value, 64)
	case "WbReclaimable", "WbWriteback":
		into := &w.Dirty
		if name == "WbWriteback" {
			into = &w.Writeback
		}
		if len(value) != 2 || value[1] != "kB" {
			return errors.New("not in kB")
		}
		err := parseCount(into, value[:1], 53) // so that the sum of two fits
		*into <<= 10
		return err
	case "b_dirty", "b_io", "b_more_io":
		var inodes uint64
		err := parseCount(&inodes, value, 32)
		w.Inodes += inodes
		return err
	}
	return nil
}

func parseCount(into *uint64, value []string, bits int) error {
	if len(value) != 1 {
		return errors.New("not one number")
	}
	n, err := strconv.ParseUint(value[0], 10, bits)
	if err != nil {
		return err
	}
	*into = n
	return nil
}

// FormatWritebackStats formats the fields of stats as the kernel does, without the other
// lines.
func FormatWritebackStats(stats []WritebackStat) string {
	var b strings.Builder
	for _, w := range stats {
		fmt.Fprintf(&b, "WbCgIno: %21d\nWbWriteback: %14d kB\nWbReclaimable: %12d kB\nb_dirty: %18d\n\n",
			w.CgroupID, w.Writeback>>10, w.Dirty>>10, w.Inodes)
	}
	return b.String()
}

// ReadWritebackStats reads the data that each cgroup has left to write, by bdi, from
// debugfs, os.DirFS("/sys/kernel/debug"). The bdi of a disk has the disk's number as its
// name. A btrfs and some other filesystems have a bdi with a name such as "btrfs-1". The
// error is ErrNotSupported if debugfs is not mounted, and before Linux 6.10.
func ReadWritebackStats(debugfs fs.FS) (map[string][]WritebackStat, error) {
	bdis, err := fs.ReadDir(debugfs, "bdi")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: debugfs is not mounted", blkio.ErrNotSupported)
	}
	if err != nil {
		return nil, fmt.Errorf("read debugfs: %w", err)
	}
	out := map[string][]WritebackStat{}
	for _, bdi := range bdis {
		file, err := debugfs.Open("bdi/" + bdi.Name() + "/wb_stats")
		if errors.Is(err, fs.ErrNotExist) {
			continue // an older kernel, or removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("read debugfs: %w", err)
		}
		stats, err := ParseWritebackStats(file)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("bdi %s: %w", bdi.Name(), err)
		}
		out[bdi.Name()] = stats
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: this kernel has no wb_stats", blkio.ErrNotSupported)
	}
	return out, nil
}
