package policy

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Bounds are the largest values that pods may request.
type Bounds struct {
	// MaxWeight is the largest weight of a container and of pod-total, from 1 to 10000. A
	// weight takes a share from others. So at the kernel's default of 100 a pod can only
	// lower its own.
	MaxWeight int
}

// checkEntry returns an error for a value that the policy does not allow.
func (p *Policy) checkEntry(l *annotation.List, en *annotation.Entry) *annotation.Error {
	if int(en.Weight) > p.Bounds.MaxWeight {
		return l.ErrorOf(en, annotation.Invalid, &annotation.Problem{
			Cause: "the weight is too large",
			Hint:  "write at most " + strconv.Itoa(p.Bounds.MaxWeight) + ", bounds.weight.max of the node policy",
		})
	}
	return p.checkFloor(l, en)
}

// weighAll decides the weight on all disks that have none of their own. It also notes the disks
// that the containers can use.
func (e *evaluation) weighAll(cs []Container) {
	if e.weight.entry == nil {
		e.weight = cell{rate: blkio.Amount(e.entry.Weight), scope: e.scope, limits: e.limits, entry: e.entry}
	}
	for i := range cs {
		c := &cs[i]
		e.weigh(&c.Rootfs)
		for k := range c.Mounts {
			if c.Mounts[k].Injected {
				continue
			}
			e.weigh(&c.Mounts[k].Backing)
			for n := range c.Mounts[k].Below {
				e.weigh(&c.Mounts[k].Below[n].Backing)
			}
		}
		e.weigh(&blkio.Backing{Disks: c.Reached})
	}
}

// weigh notes the disks that a weight is about.
func (e *evaluation) weigh(b *blkio.Backing) {
	for _, d := range e.disksOf(b) {
		if e.weighted == nil {
			e.weighted = map[blkio.Disk]bool{}
		}
		e.weighted[d] = true
	}
}

// disksOf returns the disks of b that the current entry is about: those that b is stored on for
// a limit, and the physical ones below for a weight.
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

// weightedDisks returns Desired.Weighted.
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
