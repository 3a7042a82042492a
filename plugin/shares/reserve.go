package shares

import (
	"errors"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// rivals are the cgroups directly below the root, where pods compete with all else on the node.
type rivals struct {
	pods   map[string]*cgroup // those with pods below, by path; in general one
	others map[string]*cgroup
}

// reserve gives the pods of the node a weight that leaves everything outside pods its share of
// each disk. The weights of others are only read: they can be the operator's. Processes of the
// root cgroup, such as those of the kernel, are outside of io.cost.
func (k *Keeper) reserve(now time.Time, disks []blkio.Dev, share blkio.Percent) error {
	if share == 0 {
		disks = nil
	}
	if err := k.findRivals(now); err != nil {
		return err
	}
	if len(k.rivals.pods) == 0 { // the first pod makes it
		return nil
	}
	want := map[blkio.Dev]uint32{}
	for _, dev := range disks {
		want[dev] = podsWeight(k.rivals.weightOf(dev, now), share, len(k.rivals.pods))
	}
	var errs []error
	for _, c := range k.rivals.pods {
		if err := c.set(want); err != nil && !errors.Is(err, blkio.ErrGone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// podsWeight returns the weight of each of the cgroups with pods, beside others that together
// have a weight.
func podsWeight(others uint64, share blkio.Percent, cgroups int) uint32 {
	const all = 100 * 100 // in hundredths of a percent
	weight := others * uint64(all-share) / (uint64(share) * uint64(cgroups))
	return uint32(min(max(weight, blkio.MinWeight), blkio.MaxWeight))
}

// weightOf returns the sum of the weights of those others that use a disk. If none does, it is
// the largest of their weights: one of them begins first.
func (r *rivals) weightOf(dev blkio.Dev, now time.Time) uint64 {
	var sum, largest uint64
	for _, c := range r.others {
		weight := uint64(c.weights.On(dev))
		largest = max(largest, weight)
		if used, known := c.used[dev]; known && now.Sub(used) < activeFor {
			sum += weight
		}
	}
	switch {
	case sum > 0:
		return sum
	case largest > 0:
		return largest
	}
	return blkio.DefaultWeight // nothing outside pods has the io controller
}

// findRivals reads the cgroups directly below the root.
func (k *Keeper) findRivals(now time.Time) error {
	children, err := k.cgroups.Cgroup(".").Children()
	if err != nil {
		return err
	}
	withPods := map[string]bool{}
	for _, top := range k.top {
		first, _, _ := strings.Cut(top.Path(), "/")
		withPods[first] = true
	}
	found := rivals{pods: map[string]*cgroup{}, others: map[string]*cgroup{}}
	for _, child := range children {
		into, known := found.others, k.rivals.others[child.Path()]
		if withPods[child.Path()] {
			into, known = found.pods, k.rivals.pods[child.Path()]
		}
		if known == nil {
			known = newCgroup(child, k.write)
			known.isLeaf = true // what is below it is not of interest here
		}
		switch err := known.look(now, k.read.Equal(now)); {
		case err == nil:
			into[child.Path()] = known
		case !errors.Is(err, blkio.ErrGone) && !errors.Is(err, blkio.ErrNotSupported): // no io controller
			return err
		}
	}
	k.rivals = found
	return nil
}
