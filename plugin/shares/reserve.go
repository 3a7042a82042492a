package shares

import (
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// topLevel has the cgroups directly below the root, where pods compete with all other processes of the node.
type topLevel struct {
	pods   map[string]*cgroup // those with pods below, by path; in general one
	others map[string]*cgroup
	// usage has what each of the others had used of each disk at the last pass, as control.usage.
	usage map[string]map[blkio.Dev]uint64
	// squeezed is Result.Squeezed.
	squeezed map[blkio.Dev]bool
}

// reserve gives the pods of the node a weight that leaves everything outside pods its share of
// each disk. The weights of others are only read: they can be the operator's. Processes of the
// root cgroup, such as those of the kernel, are outside of io.cost.
func (k *Keeper) reserve(now time.Time, disks []blkio.Dev, share blkio.Percent) (errs []error) {
	if share == 0 {
		disks = nil
	}
	if err := k.findTopLevel(now); err != nil {
		return []error{err}
	}
	if len(k.topLevel.pods) == 0 { // the first pod makes it
		return nil
	}
	want := map[blkio.Dev]uint32{}
	for _, dev := range disks {
		others := k.topLevel.weightOf(dev)
		want[dev] = k.control.podsWeight(others, share, len(k.topLevel.pods))
		most := uint64(len(k.topLevel.pods)) * uint64(k.control.most)
		k.topLevel.squeezed[dev] = most*uint64(share) < others*uint64(100*100-share)
	}
	k.topLevel.noteUsage()
	for _, c := range k.topLevel.pods {
		errs = append(errs, c.set(c.steady(want))...)
	}
	return errs
}

// steady returns the wanted weights. A weight that differs by less than a twentieth is replaced by the one that
// c has, because the usage of others is never quite the same twice.
func (c *cgroup) steady(want map[blkio.Dev]uint32) map[blkio.Dev]uint32 {
	out := make(map[blkio.Dev]uint32, len(want))
	for dev, weight := range want {
		out[dev] = weight
		if now := c.weights.On(dev); 20*(max(now, weight)-min(now, weight)) < weight {
			out[dev] = now
		}
	}
	return out
}

// podsWeight returns the weight of each of the cgroups with pods, beside others that together
// have a weight.
func (c *control) podsWeight(others uint64, share blkio.Percent, cgroups int) uint32 {
	const all = 100 * 100 // in hundredths of a percent
	weight := others * uint64(all-share) / (uint64(share) * uint64(cgroups))
	return uint32(min(max(weight, blkio.MinWeight), uint64(c.most)))
}

// weightOf returns the weight that a single cgroup would need to get the same part of a disk as the others
// together. That is their usage, divided by the usage per weight of the cgroup that has the most of it. A
// cgroup that has done a single operation adds next to nothing. With its whole weight it would raise that of
// the pods, and a cgroup that needs all it can get would have less than the reserve. If no other cgroup uses
// the disk, the weight is the largest of theirs, because one of them begins first.
func (r *topLevel) weightOf(dev blkio.Dev) uint64 {
	var sum, most, mostWeight, largest uint64
	for p, c := range r.others {
		weight, used := uint64(c.weights.On(dev)), r.usedSince(p, dev, c.control.usage(c.counters[dev]))
		sum += used
		if mostWeight == 0 || used*mostWeight > most*weight {
			most, mostWeight = used, weight
		}
		largest = max(largest, weight)
	}
	switch {
	case sum > 0:
		return sum * mostWeight / most
	case largest > 0:
		return largest
	}
	return blkio.DefaultWeight // nothing outside pods has the io controller
}

// usedSince returns the usage of a disk by a cgroup since the last pass. It is 0 for a new cgroup, and where
// the kernel counts from 0 again.
func (r *topLevel) usedSince(p string, dev blkio.Dev, usage uint64) uint64 {
	last, seen := r.usage[p]
	if !seen || usage < last[dev] {
		return 0
	}
	return usage - last[dev]
}

func (r *topLevel) noteUsage() {
	r.usage = make(map[string]map[blkio.Dev]uint64, len(r.others))
	for p, c := range r.others {
		r.usage[p] = make(map[blkio.Dev]uint64, len(c.counters))
		for dev, stat := range c.counters {
			r.usage[p][dev] = c.control.usage(stat)
		}
	}
}

// findTopLevel reads the cgroups directly below the root. One that cannot be read does not count.
func (k *Keeper) findTopLevel(now time.Time) error {
	children, err := k.cgroups.Cgroup(".").Children()
	if err != nil {
		return err
	}
	withPods := map[string]bool{}
	for _, top := range k.top {
		first, _, _ := strings.Cut(top.Path(), "/")
		withPods[first] = true
	}
	k.unread.topLevel = nil
	p := &pass{now: now}
	found := topLevel{pods: map[string]*cgroup{}, others: map[string]*cgroup{}, usage: k.topLevel.usage, squeezed: map[blkio.Dev]bool{}}
	for _, child := range children {
		into, known := found.others, k.topLevel.others[child.Path()]
		if withPods[child.Path()] {
			into, known = found.pods, k.topLevel.pods[child.Path()]
		}
		if known == nil {
			known = newCgroup(child, k.control)
			known.isLeaf = true // the cgroups below it are not needed here
		}
		switch err := known.read(p, k.read.Equal(now)); {
		case err == nil:
			into[child.Path()] = known
		case !isAway(err):
			k.unread.topLevel = append(k.unread.topLevel, Skipped{child.Path(), err})
		}
	}
	k.topLevel = found
	return nil
}
