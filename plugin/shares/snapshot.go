package shares

import (
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// Snapshot has the cgroups of pods at one moment, to compute the shares of a further pod.
type Snapshot struct {
	top   []*cgroup
	given map[string]blkio.Weights
}

// moment is the time of a Snapshot. Nothing happens after it.
var moment time.Time // constant

// ReadSnapshot reads the cgroups of pods, and writes nothing. given is as in Demand. With an error about
// cgroups that could not be read, the snapshot has the other ones.
func ReadSnapshot(cgroups *cgroupfs.Hierarchy, given map[string]blkio.Weights) (*Snapshot, error) {
	k := NewKeeper(cgroups, nil)
	if err := k.readTree(moment); err != nil {
		return nil, err
	}
	for _, top := range k.top {
		top.noteAll()
	}
	return &Snapshot{top: k.top, given: given}, skippedError(k.skipped())
}

// noteAll makes all cgroups that have used a disk active on it.
func (c *cgroup) noteAll() {
	for dev, stat := range c.counters {
		if stat != (blkio.Stat{}) {
			c.used[dev] = moment
		}
	}
	for _, child := range c.children {
		child.noteAll()
	}
}

// Beside returns the shares of a pod and of its containers on a disk, by path. They compete with all containers
// that have used the disk since they started, as if all of them were busy. Beside also returns the number of
// these containers.
func (s *Snapshot) Beside(dev blkio.Dev, pod Cgroup) (shares map[string]float64, rivals int) {
	var all []Cgroup
	for _, top := range s.top {
		all = append(all, top.onDisk(dev, moment, s.given, nil).Children...)
	}
	return Beside(all, pod), activeLeaves(all)
}

// Beside returns the shares of a pod and of its containers, by path, beside others.
func Beside(others []Cgroup, pod Cgroup) map[string]float64 {
	out := map[string]float64{}
	all, _ := Distribute(Cgroup{Children: append(slices.Clip(others), pod)})
	for _, s := range all[len(all)-1-len(pod.Children):] { // it is the last one
		out[s.Path] = s.Fraction
	}
	return out
}

func activeLeaves(list []Cgroup) (n int) {
	for i := range list {
		if c := &list[i]; len(c.Children) > 0 {
			n += activeLeaves(c.Children)
		} else if c.Active {
			n++
		}
	}
	return n
}
