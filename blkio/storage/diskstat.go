package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

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
