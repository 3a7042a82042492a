package inventory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// loopDeadline bounds the search for the disk below a loop device: its file may be on a filesystem that does not answer.
const loopDeadline = time.Second

// FindLowest finds the physical disks below the disks of a container, undeclared ones included. They may have changed since the last
// call. Only a budget needs them.
func (f *Finder) FindLowest(c *Container) { c.Facts.Lowest = Lowest(f.Storage, devsOf(&c.Facts)) }

// devsOf returns the disks of a container, undeclared ones included.
func devsOf(c *policy.Container) []blkio.Dev {
	devs := make([]blkio.Dev, 0, 8) // mostly enough
	add := func(disks []blkio.Disk) {
		for _, d := range disks {
			if !slices.Contains(devs, d.Dev) {
				devs = append(devs, d.Dev)
			}
		}
	}
	for o := range c.Objects() {
		add(o.Disks)
	}
	add(c.Undeclared)
	return devs
}

// Lowest returns the physical disks below those of some devices that are made of others, see policy.Container.Lowest. A device whose
// members cannot be read is left out: it counts as a disk of its own.
func Lowest(s Storage, devs []blkio.Dev) map[blkio.Dev][]blkio.Disk {
	return madeOf(devs, func(dev blkio.Dev) []blkio.Disk { return lowest(s, dev) })
}

// madeOf returns the disks below each of some devices that is made of others.
func madeOf(devs []blkio.Dev, disksOf func(blkio.Dev) []blkio.Disk) map[blkio.Dev][]blkio.Disk {
	var out map[blkio.Dev][]blkio.Disk
	for _, dev := range devs {
		below := disksOf(dev)
		if len(below) == 0 || len(below) == 1 && below[0].Dev == dev {
			continue
		}
		if out == nil {
			out = map[blkio.Dev][]blkio.Disk{}
		}
		out[dev] = below
	}
	return out
}

// lowest returns the physical disks below a device, or the device itself if it is one, sorted by number. Loop devices with files on
// one another are few, because the kernel bounds the depth of a stack.
func lowest(s Storage, dev blkio.Dev) []blkio.Disk {
	physical, err := s.Physical(dev)
	if err != nil || !slices.ContainsFunc(physical, isLoop) {
		return physical
	}
	var out []blkio.Disk
	for _, d := range physical {
		if below := belowLoop(s, d); len(below) > 0 {
			out = append(out, below...)
		} else {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b blkio.Disk) int { return a.Dev.Compare(b.Dev) })
	return slices.CompactFunc(out, func(a, b blkio.Disk) bool { return a.Dev == b.Dev })
}

func isLoop(d blkio.Disk) bool { return strings.HasPrefix(d.Name, "loop") }

// belowLoop returns the physical disks below a loop device; none for another one, and if its file cannot be found.
func belowLoop(s Storage, d blkio.Disk) (out []blkio.Disk) {
	if !isLoop(d) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), loopDeadline)
	defer cancel()
	for _, under := range s.Under(ctx, d.Dev) { // at any depth
		if !isLoop(under) {
			out = append(out, lowest(s, under.Dev)...)
		}
	}
	return out
}
