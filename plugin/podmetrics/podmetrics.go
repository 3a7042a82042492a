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

// Pod is a running pod, with limits or without.
type Pod struct {
	Namespace, Name, Cgroup string

	Limits []blkio.Value // of the pod as a whole: its own or, if all of its containers are limited, their sum
	Parts  []Part        // the cgroups with limits: those of containers, and that of the pod
}

// Part is a cgroup of a pod with the limits that were requested for it.
type Part struct {
	Cgroup string
	Limits []blkio.Value
}

// limited returns the disks on which a cgroup of the pod has limits.
func (p *Pod) limited() []blkio.Dev {
	var out []blkio.Dev
	for _, part := range p.Parts {
		for _, l := range part.Limits {
			out = append(out, l.Dev)
		}
	}
	slices.SortFunc(out, blkio.Dev.Compare)
	return slices.Compact(out)
}

// maxSeries is the largest number of series of pods and their disks, because tenants decide on the number of both. The page
// has less than 2,000 series with it. Weights have a maximum of their own.
const maxSeries = 1850

// line is what is shown of a pod together or not at all. One has its waiting with the limits, which may explain that. Another one has the
// use of all of its disks: without some of them, the pod would look as if it did little I/O.
type line struct {
	of    *reading
	disks []blkio.Dev // whose use it has; nil in the line of the waiting
	rank  int         // the series of the namespace up to this line
}

// series returns the number of series. A disk that is not known yet has three of its own for the whole node.
func (l *line) series(known map[blkio.Dev]bool) int {
	if l.disks == nil {
		return 1 + len(l.of.pod.Limits) + len(l.of.pod.limited())
	}
	n := 3 * len(l.disks) // bytes read and written, and operations
	for _, dev := range l.disks {
		if !known[dev] {
			n += 3
		}
	}
	return n
}

// addDisks adds the disks whose use it has.
func (l *line) addDisks(to map[blkio.Dev]bool) {
	for _, dev := range l.disks {
		to[dev] = true
	}
}

// bound returns lines with at most so many series together, and the number of pods of which one is left out. Each namespace has the
// same room, as far as it needs it, so that the pods of one tenant do not hide those of another one. Within a namespace use comes
// last. The order of pods does not matter: each scrape leaves out the same ones.
func bound(readings []*reading, room int) (in []line, leftOut int) {
	var all []line
	for _, r := range readings {
		if all = append(all, line{of: r}); len(r.used) > 0 {
			all = append(all, line{of: r, disks: r.used})
		}
	}
	slices.SortFunc(all, compare)
	sum, disks := 0, map[blkio.Dev]bool{}
	for i := range all {
		if i == 0 || all[i].of.pod.Namespace != all[i-1].of.pod.Namespace {
			sum, disks = 0, map[blkio.Dev]bool{}
		}
		sum += all[i].series(disks)
		all[i].rank = sum
		all[i].addDisks(disks)
	}
	slices.SortStableFunc(all, func(a, b line) int { return cmp.Compare(a.rank, b.rank) })
	clear(disks)
	without := map[*reading]bool{}
	for _, l := range all {
		n := l.series(disks)
		if n > room {
			without[l.of] = true
			continue
		}
		room -= n
		in = append(in, l)
		l.addDisks(disks)
	}
	return in, len(without)
}

// compare is the order in which lines take the room of their namespace.
func compare(a, b line) int {
	p, q := a.of.pod, b.of.pod
	return cmp.Or(cmp.Compare(p.Namespace, q.Namespace), cmp.Compare(min(len(a.disks), 1), min(len(b.disks), 1)),
		cmp.Compare(p.Name, q.Name), cmp.Compare(p.Cgroup, q.Cgroup))
}

// reading has the I/O of a pod at one time.
type reading struct {
	pod     *Pod
	time    time.Time
	stats   map[string]map[blkio.Dev]blkio.Stat // by the cgroups of the pod and of its parts
	used    []blkio.Dev                         // the disks in stats that the pod has used
	waiting *blkio.Pressure                     // nil without pressure stall information
	// atLimits is how many seconds the I/O since the first reading takes at the limits.
	atLimits map[blkio.Dev]float64
}

// read reads the cgroups of a pod. Of a pod that was removed the reading is empty.
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
	for dev, s := range r.stats[p.Cgroup] {
		if s.Bytes() > 0 { // otherwise a flush, which sync(2) sends to all disks
			r.used = append(r.used, dev)
		}
	}
	slices.SortFunc(r.used, blkio.Dev.Compare)
	return r
}

// isRead reports whether the counters of the pod are known.
func (r *reading) isRead() bool {
	_, is := r.stats[r.pod.Cgroup]
	return is
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
