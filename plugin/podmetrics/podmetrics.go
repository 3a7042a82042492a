// Package podmetrics gives metrics of the limits and the I/O of pods. Each scrape reads io.stat and io.pressure of
// their cgroups.
package podmetrics

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// Pod is a running pod with limits or weights.
type Pod struct {
	Namespace, Name, Cgroup string

	Disks  []blkio.Disk  // on which it has limits or weights
	Limits []blkio.Value // of the pod as a whole: its own or, if all of its containers are limited, their sum
	Parts  []Part        // the cgroups with limits: those of containers, and that of the pod
}

// Part is a cgroup of a pod with the limits that were requested for it.
type Part struct {
	Cgroup string
	Limits []blkio.Value
}

// maxSeries is the largest number of series of pods and their disks, because tenants decide on the number of both. The page
// has less than 2,000 series with it. Weights have a maximum of their own.
const maxSeries = 1850

// series returns the number of series of a pod: for each disk those of bytes read and written, of operations, and of the
// time at limits. A disk that is not known yet, by its name, has three of its own for the whole node.
func (p *Pod) series(known map[string]bool) int {
	n, unknown := 1+4*len(p.Disks)+len(p.Limits), map[string]bool{}
	for _, d := range p.Disks {
		if !known[d.Name] {
			unknown[d.Name] = true
		}
	}
	return n + 3*len(unknown)
}

// addDisks adds the names of its disks.
func (p *Pod) addDisks(to map[string]bool) {
	for _, d := range p.Disks {
		to[d.Name] = true
	}
}

// bound returns pods with at most so many series together, and the number of those left out. Each namespace has the
// same room, as far as it needs it, so that the pods of one tenant do not hide those of another one. The order of pods
// does not matter: each scrape leaves out the same ones.
func bound(pods []Pod, room int) (in []Pod, leftOut int) {
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Cgroup, b.Cgroup))
	})
	sum, rank, disks := 0, map[string]int{}, map[string]bool{} // rank: the series of the namespace up to a pod
	for i := range pods {
		if i == 0 || pods[i].Namespace != pods[i-1].Namespace {
			sum, disks = 0, map[string]bool{}
		}
		sum += pods[i].series(disks)
		rank[pods[i].Cgroup] = sum
		pods[i].addDisks(disks)
	}
	slices.SortStableFunc(pods, func(a, b Pod) int { return cmp.Compare(rank[a.Cgroup], rank[b.Cgroup]) })
	clear(disks)
	for _, p := range pods {
		if n := p.series(disks); n <= room {
			room -= n
			in = append(in, p)
			p.addDisks(disks)
		}
	}
	return in, len(pods) - len(in)
}

// reading has the I/O of a pod at one time.
type reading struct {
	pod     *Pod
	time    time.Time
	stats   map[string]map[blkio.Dev]blkio.Stat // by the cgroups of the pod and of its parts
	waiting *blkio.Pressure                     // nil without pressure stall information
	// atLimits is how many seconds the I/O since the first reading takes at the limits.
	atLimits map[blkio.Dev]float64
}

// read reads the cgroups of a pod. It returns nil if the pod was removed.
func (p *Pod) read(cgroups *cgroupfs.Hierarchy) *reading {
	r := &reading{pod: p, time: time.Now(), stats: map[string]map[blkio.Dev]blkio.Stat{}, atLimits: map[blkio.Dev]float64{}}
	for _, part := range append([]Part{{Cgroup: p.Cgroup}}, p.Parts...) {
		if stat, err := cgroups.Cgroup(part.Cgroup).ReadIOStat(); err == nil { // otherwise the container has ended
			r.stats[part.Cgroup] = stat
		}
	}
	if pressure, err := cgroups.Cgroup(p.Cgroup).ReadIOPressure(); err == nil {
		r.waiting = &pressure
	}
	if _, isRead := r.stats[p.Cgroup]; !isRead {
		return nil
	}
	return r
}

// countSince sets atLimits. This is an upper bound of the time that limits have held the I/O: while one does, all of it is
// used. The containers can be held one after the other, and so can reads and writes. Of bytes and operations the slower one
// counts.
func (r *reading) countSince(earlier *reading) {
	if !r.time.After(earlier.time) { // it is of another scrape, and newer
		*r = *earlier
		return
	}
	type direction struct {
		dev    blkio.Dev
		isRead bool
	}
	took := map[blkio.Dev]float64{}
	for _, part := range r.pod.Parts {
		before, wasRead := earlier.stats[part.Cgroup]
		now, isRead := r.stats[part.Cgroup]
		if !wasRead || !isRead {
			continue
		}
		longest := map[direction]float64{}
		for _, l := range part.Limits {
			d := direction{l.Dev, l.Key.IsRead()}
			longest[d] = max(longest[d], (float64(now[l.Dev].Limited(l.Key))-float64(before[l.Dev].Limited(l.Key)))/float64(l.Amount))
		}
		for d, seconds := range longest {
			took[d.dev] += seconds
		}
	}
	maps.Copy(r.atLimits, earlier.atLimits)
	for dev, seconds := range took {
		r.atLimits[dev] += min(seconds, r.time.Sub(earlier.time).Seconds())
	}
}
