package inventory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// lowestDeadline bounds the search for the disks below loop devices: their files may be on a filesystem that does not answer.
const lowestDeadline = time.Second

// FindLowest finds the physical disks below the disks of a container, undeclared ones included, if a budget needs them. They may have
// changed since the last call.
func (f *Finder) FindLowest(pod *Pod, c *Container) {
	c.Facts.Lowest = nil
	if !pod.Targets.Lowest {
		return
	}
	var devs []blkio.Dev
	add := func(d blkio.Disk) {
		if !slices.Contains(devs, d.Dev) {
			devs = append(devs, d.Dev)
		}
	}
	eachDisk(&c.Facts, add)
	for _, d := range c.Facts.Undeclared {
		add(d)
	}
	c.Facts.Lowest = Lowest(f.Storage, devs)
}

// Lowest returns the physical disks below those of some devices that are made of others, see policy.Container.Lowest. A device whose
// members cannot be read is left out: it counts as a disk of its own.
func Lowest(s Storage, devs []blkio.Dev) map[blkio.Dev][]blkio.Disk {
	ctx, cancel := context.WithTimeout(context.Background(), lowestDeadline)
	defer cancel()
	var out map[blkio.Dev][]blkio.Disk
	for _, dev := range devs {
		below := lowest(ctx, s, dev, nil)
		if len(below) == 0 || len(below) == 1 && below[0].Dev == dev {
			continue
		}
		if out == nil {
			out = map[blkio.Dev][]blkio.Disk{}
		}
		slices.SortFunc(below, func(a, b blkio.Disk) int { return a.Dev.Compare(b.Dev) })
		out[dev] = below
	}
	return out
}

// lowest adds the physical disks below a device, or the device itself if it is one.
func lowest(ctx context.Context, s Storage, dev blkio.Dev, to []blkio.Disk) []blkio.Disk {
	physical, err := s.Physical(dev)
	if err != nil {
		return to
	}
	for _, d := range physical {
		if !strings.HasPrefix(d.Name, "loop") {
			if !slices.ContainsFunc(to, func(o blkio.Disk) bool { return o.Dev == d.Dev }) {
				to = append(to, d)
			}
			continue
		}
		under := s.Under(ctx, d.Dev) // at any depth
		if len(under) == 0 {         // its file cannot be found
			to = append(to, d)
		}
		for _, u := range under {
			to = lowest(ctx, s, u.Dev, to)
		}
	}
	return to
}
