package policy

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// weighAll decides the weight on all disks that have none of their own. It also notes the disks
// that the containers can use.
func (e *evaluation) weighAll(cs []Container) {
	if e.weight.entry == nil {
		e.weight = e.cell(blkio.Amount(e.entry.Weight))
	}
	for i := range cs {
		for o := range cs[i].starred() {
			e.weigh(o.Backing)
		}
	}
}

// isOutweighed reports whether the current entry has a weight, and that of an earlier scope on all disks
// holds in its place. The kernel would prefer the weight of a single disk.
func (e *evaluation) isOutweighed() bool {
	return e.entry.Weight != 0 && e.weight.entry != nil && e.weight.scope < e.scope
}

func (e *evaluation) weigh(b *blkio.Backing) {
	for _, d := range e.disksOf(b) {
		if e.weighted == nil {
			e.weighted = map[blkio.Disk]bool{}
		}
		e.weighted[d] = true
	}
}

// disksOf returns the disks of b that the current entry applies to. For a limit these are the disks of b, and
// for a weight the physical ones below.
func (e *evaluation) disksOf(b *blkio.Backing) []blkio.Disk {
	if e.entry.Weight == 0 {
		return b.Disks
	}
	physical := e.physicalDisks()
	var out []blkio.Disk
	for _, d := range b.Disks {
		if below := physical[d.Dev]; below != nil {
			out = append(out, below...)
		} else {
			out = append(out, d)
		}
	}
	return out
}

// physicalDisks returns Container.Physical of all containers. It is the same for all targets of
// one evaluation: a pod can have hundreds of containers, each with as many volumes.
func (e *evaluation) physicalDisks() map[blkio.Dev][]blkio.Disk {
	switch {
	case e.physical != nil:
	case len(e.containers) == 1 && e.containers[0].Physical != nil:
		e.physical = e.containers[0].Physical
	default:
		e.physical = map[blkio.Dev][]blkio.Disk{}
		for i := range e.containers {
			maps.Copy(e.physical, e.containers[i].Physical)
		}
	}
	return e.physical
}

func (e *evaluation) weightedDisks() []blkio.Disk {
	out := slices.Collect(maps.Keys(e.weighted))
	for i := range e.rows {
		if r := &e.rows[i]; r.cells[blkio.DiskWeight].entry != nil && !e.weighted[r.disk] {
			out = append(out, r.disk)
		}
	}
	slices.SortFunc(out, func(a, b blkio.Disk) int { return cmp.Or(a.Dev.Compare(b.Dev), cmp.Compare(a.Name, b.Name)) })
	return out
}
