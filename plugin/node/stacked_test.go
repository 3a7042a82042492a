package node

import (
	"context"
	"fmt"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// stacked is a Storage with disks on others, swap, and disks that are not there.
type stacked struct {
	disks
	under map[blkio.Dev][]blkio.Disk
	swap  []blkio.Disk
	fails error // to read swaps
	gone  map[blkio.Dev]bool
	// mounted has the devices of the filesystems that the node has mounted.
	mounted map[blkio.Dev]bool
	hangs   blkio.Dev // a read of the devices below it hangs
	asked   int
}

func (s *stacked) MountedDisks() map[blkio.Dev]bool { return s.mounted }

func (s *stacked) Under(ctx context.Context, dev blkio.Dev) []blkio.Disk {
	s.asked++
	if s.hangs == dev && dev != (blkio.Dev{}) {
		<-ctx.Done()
	}
	if s.gone[dev] {
		return nil
	}
	return s.under[dev]
}

func (s *stacked) SwapDisks(context.Context) ([]blkio.Disk, error) { return s.swap, s.fails }

func (*stacked) Physical(disk blkio.Dev) ([]blkio.Disk, error) { return []blkio.Disk{{Dev: disk}}, nil }

func (s *stacked) Device(dev blkio.Dev) blkio.Backing {
	if s.gone[dev] {
		return blkio.Backing{Reason: "no such disk", Missing: true}
	}
	if dev == (blkio.Dev{Major: 8, Minor: 17}) { // a partition, which the kernel never lists
		return on(plugged)
	}
	return on(blkio.Disk{Dev: dev, Name: "plugged"})
}

var plugged = blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 16}, Name: "plugged"}

// newStacked returns a node on which the container's data is on a disk made of two others. One of these is a
// loop device.
func newStacked() *stacked {
	return &stacked{
		disks: disks{twoDisks},
		under: map[blkio.Dev][]blkio.Disk{
			dataDisk.Dev:             {{Dev: blkio.Dev{Major: 8}}, {Dev: blkio.Dev{Major: 8, Minor: 32}}},
			{Major: 253, Minor: 1}:   {plugged},
			{Major: 253, Minor: 100}: {{Dev: blkio.Dev{Major: 8, Minor: 64}}},
		},
		swap:    []blkio.Disk{{Dev: blkio.Dev{Major: 253, Minor: 100}}},
		mounted: map[blkio.Dev]bool{{Major: 8, Minor: 80}: true},
		gone:    map[blkio.Dev]bool{},
	}
}

// moved returns the lines of io.stat of disks, such as "8:16", from which so many bytes were read.
func moved(bytes uint64, devices ...string) string {
	var out strings.Builder
	for _, d := range devices {
		fmt.Fprintf(&out, "%s rbytes=%d wbytes=%d rios=9 wios=9 dbytes=0 dios=0\n", d, bytes/2, bytes-bytes/2)
	}
	return out.String()
}
