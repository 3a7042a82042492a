package storage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Under returns the disks below a disk, at any depth, sorted by number. These are the members of a dm or md
// device, and the disk with the file of a loop device. The kernel charges a cgroup's I/O on each of them.
//
// A device or file that cannot be found is left out. The path of a loop device's file is relative to the mount
// namespace of the process that attached it. So it may be another file on the node.
func (s *Storage) Under(ctx context.Context, disk blkio.Dev) []blkio.Disk {
	found := make(map[blkio.Dev]blkio.Disk)
	s.current.Load().under(ctx, disk, found)
	return sortedDisks(found)
}

func (s *snapshot) under(ctx context.Context, dev blkio.Dev, found map[blkio.Dev]blkio.Disk) {
	disk, err := s.sys.WholeDisk(dev)
	if err != nil {
		return // it has left
	}
	for _, d := range s.directlyUnder(ctx, "block/"+disk.Name) {
		if _, known := found[d.Dev]; !known {
			found[d.Dev] = d
			s.under(ctx, d.Dev, found)
		}
	}
}

// directlyUnder is under for the disk with the directory, without the disks under those.
func (s *snapshot) directlyUnder(ctx context.Context, dir string) []blkio.Disk {
	out, err := s.sys.slaves(dir)
	if err != nil {
		out = nil // some are leaving
	}
	if file := s.sys.text(dir + "/loop/backing_file"); file != "" {
		out = append(out, s.locate(ctx, strings.TrimSuffix(file, " (deleted)")).backing.Disks...)
	}
	if node := s.sys.text(dir + "/backing_dev"); strings.HasPrefix(node, "/") { // of zram, or "none"
		out = append(out, s.diskOf(node)...)
	}
	return out
}

// diskOf is the whole disk that a path below /dev names.
func (s *snapshot) diskOf(node string) []blkio.Disk {
	dev, err := s.node(node)
	if err != nil {
		return nil // it has left
	}
	disk, err := s.sys.WholeDisk(dev)
	if err != nil {
		return nil
	}
	return []blkio.Disk{disk}
}

// Physical returns the physical disks below a disk, see [Sysfs.Physical]. Weights have an effect
// there. It reads sysfs: device mapper can change a stack at any time.
func (s *Storage) Physical(disk blkio.Dev) ([]blkio.Disk, error) { return s.sys.Physical(disk) }

// Links returns udev's links to a disk, see [ReadLinks]. A disk that the database lacks, or whose entry cannot be
// read, has none: it still has the kernel's name.
func (s *Storage) Links(disk blkio.Dev) []string {
	if s.cfg.UdevData == nil {
		return nil
	}
	links, err := ReadLinks(s.cfg.UdevData, disk)
	if err != nil {
		return nil
	}
	return links
}

// SwapDisks returns the disks that the kernel swaps to, directly or to a file on them,
// sorted by number.
func (s *Storage) SwapDisks(ctx context.Context) ([]blkio.Disk, error) {
	if s.cfg.Swaps == "" {
		return nil, nil
	}
	f, err := os.Open(s.cfg.Swaps)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a kernel without
	}
	if err != nil {
		return nil, fmt.Errorf("read swaps: %w", err)
	}
	defer f.Close()
	swaps, err := ParseSwaps(f)
	if err != nil {
		return nil, err
	}
	snap := s.current.Load()
	found := make(map[blkio.Dev]blkio.Disk)
	for _, swap := range swaps {
		var disks []blkio.Disk
		if swap.File {
			disks = snap.locate(ctx, swap.Name).backing.Disks
		} else {
			disks = snap.diskOf(swap.Name)
		}
		for _, d := range disks {
			found[d.Dev] = d
		}
	}
	return sortedDisks(found), nil
}

// Swap is a device or file that the kernel swaps to.
type Swap struct {
	Name string // path on the node
	File bool   // true for a file on a filesystem, false for a device
	Size uint64 // bytes
	Used uint64 // bytes
}

// ParseSwaps parses /proc/swaps:
//
//	Filename				Type		Size		Used		Priority
//	/dev/vda5                               partition	1000444		0		-2
//	(1)                                     (2)             (3)             (4)
//
//	(1) blanks, tabs, newlines and backslashes are octal: \040
//	(2) "partition", which is any device, or "file"
//	(3), (4) KiB
//
// Source: swap_show in mm/swapfile.c; proc(5).
func ParseSwaps(r io.Reader) ([]Swap, error) {
	var out []Swap
	scan := bufio.NewScanner(r)
	for n := 1; scan.Scan(); n++ {
		f := strings.Fields(scan.Text())
		if n == 1 || len(f) == 0 {
			continue // the header, with any words
		}
		if len(f) < 4 {
			return nil, fmt.Errorf("parse swaps, line %d: %d fields", n, len(f))
		}
		size, err := strconv.ParseUint(f[2], 10, 54)
		if err != nil {
			return nil, fmt.Errorf("parse swaps, line %d: %w", n, err)
		}
		used, err := strconv.ParseUint(f[3], 10, 54)
		if err != nil {
			return nil, fmt.Errorf("parse swaps, line %d: %w", n, err)
		}
		out = append(out, Swap{Name: unescapeOctal(f[0]), File: f[1] == "file", Size: size << 10, Used: used << 10})
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("read swaps: %w", err)
	}
	return out, nil
}
