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

// maxSeries is the largest number of series of pods, because tenants decide on the number of pods and disks. The page
// has less than 2,000 series with it on a node with a few disks. Weights have a maximum of their own, and each disk has three series.
const maxSeries = 1850

// series returns the number of series of a pod: for each disk those of bytes read and written, of operations, and of the
// time at limits.
func (p *Pod) series() int { return 1 + 4*len(p.Disks) + len(p.Limits) }

// bound returns pods with at most so many series together, and the number of those left out. Each namespace has the
// same room, as far as it needs it, so that the pods of one tenant do not hide those of another one. The order of pods
// does not matter: each scrape leaves out the same ones.
func bound(pods []Pod, room int) (in []Pod, leftOut int) {
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Cgroup, b.Cgroup))
	})
	ofNamespace, rank := map[string]int{}, map[string]int{} // rank: the series of the namespace up to a pod
	for i := range pods {
		ofNamespace[pods[i].Namespace] += pods[i].series()
		rank[pods[i].Cgroup] = ofNamespace[pods[i].Namespace]
	}
	slices.SortStableFunc(pods, func(a, b Pod) int { return cmp.Compare(rank[a.Cgroup], rank[b.Cgroup]) })
	for _, p := range pods {
		if n := p.series(); n <= room {
			room -= n
			in = append(in, p)
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
			longest[d] = max(longest[d], (used(now[l.Dev], l.Key)-used(before[l.Dev], l.Key))/float64(l.Amount))
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

// used returns the counter that a key limits.
func used(s blkio.Stat, k blkio.Key) float64 {
	return float64([blkio.NumLimits]uint64{blkio.Rbps: s.Rbytes, blkio.Wbps: s.Wbytes, blkio.Riops: s.Rios, blkio.Wiops: s.Wios}[k])
}
