package weights

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// lingerFor is how long io.cost stays enabled on a disk after the last container with a weight. The
// kernel stops the queue of a disk to enable io.cost, and to disable it. Jobs that run one after
// the other would have it do so with each of them.
const lingerFor = 20 * time.Second

// recent has the disks that something with a weight uses, or has used lately.
type recent map[blkio.Disk]use

// use is the use of a disk by something with a weight.
type use struct {
	at time.Time // when it was last seen
	// identity is the identity of the disk when it was last listed, "" before that and if it is unknown.
	identity string
}

// disks takes up a demand, and returns the disks on which weights count, sorted by number.
func (r recent) disks(now time.Time, d *Demand) []blkio.Disk {
	for _, disk := range d.Cleared {
		delete(r, disk)
	}
	for i := range d.Weighted {
		for _, disk := range d.Weighted[i].Disks {
			r[disk] = use{now, r[disk].identity}
		}
	}
	maps.DeleteFunc(r, func(_ blkio.Disk, u use) bool { return now.Sub(u.at) >= lingerFor })
	return r.sorted()
}

// identify takes up the disks of the node, and returns those on which weights count. A disk that has
// come in the place of another one, with its number and name, has not been used lately.
func (r recent) identify(now time.Time, disks []storage.DiskInfo) []blkio.Disk {
	for i := range disks {
		disk, is := disks[i].Disk, identity(&disks[i])
		switch u, found := r[disk]; {
		case !found:
		case !u.at.Equal(now) && u.identity != "" && u.identity != is:
			delete(r, disk)
		default:
			r[disk] = use{u.at, is}
		}
	}
	return r.sorted()
}

func (r recent) sorted() []blkio.Disk {
	return slices.SortedFunc(maps.Keys(r), func(a, b blkio.Disk) int { return cmp.Or(a.Dev.Compare(b.Dev), cmp.Compare(a.Name, b.Name)) })
}
