package weights

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// lingerFor is how long io.cost stays enabled on a disk after the last container with a weight. The
// kernel stops the queue of a disk to enable io.cost, and to disable it. Jobs that run one after
// the other would have it do so with each of them.
const lingerFor = 20 * time.Second

// recent has the disks that something with a weight uses, or has used lately, with the time when
// that was last seen.
type recent map[blkio.Disk]time.Time

// disks takes up a demand, and returns the disks on which weights count, sorted by number.
func (r recent) disks(now time.Time, d *Demand) []blkio.Disk {
	for _, disk := range d.Cleared {
		delete(r, disk)
	}
	for i := range d.Weighted {
		for _, disk := range d.Weighted[i].Disks {
			r[disk] = now
		}
	}
	maps.DeleteFunc(r, func(_ blkio.Disk, used time.Time) bool { return now.Sub(used) >= lingerFor })
	return slices.SortedFunc(maps.Keys(r), func(a, b blkio.Disk) int { return cmp.Or(a.Dev.Compare(b.Dev), cmp.Compare(a.Name, b.Name)) })
}
