// Package podmetrics gives metrics of the limits and the I/O of pods. Each scrape reads io.stat and io.pressure of
// their cgroups.
package podmetrics

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
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

// Collector gives the metrics of pods.
type Collector struct {
	pods    func() []Pod
	name    func(blkio.Dev) string
	cgroups *cgroupfs.Hierarchy
	calls   bounded.Calls // scrapes that read cgroups

	mu   sync.Mutex          // guards last; never held during a read
	last map[string]*reading // by the cgroup of the pod
}

// New returns a Collector. pods reads nothing of the node, and name, which returns the name of a disk, nothing that can hang. panicked is
// called after a panic in a read.
func New(pods func() []Pod, name func(blkio.Dev) string, cgroups *cgroupfs.Hierarchy, panicked func()) *Collector {
	return &Collector{pods: pods, name: name, cgroups: cgroups, calls: bounded.Calls{Panicked: panicked}}
}

// readDeadline bounds the time in which a scrape reads cgroups. A thousand files take about twenty milliseconds.
const readDeadline = 2 * time.Second

var (
	limitBytesDesc = desc("pod_limit_bytes_per_second", "Limit of a pod on a disk: its own, or the sum of its containers' if all of them have one.", "namespace", "pod", "disk", "op")
	limitOpsDesc   = desc("pod_limit_operations_per_second", "Limit of a pod on a disk: its own, or the sum of its containers' if all of them have one.", "namespace", "pod", "disk", "op")
	bytesDesc      = desc("pod_bytes_total", "Bytes that a pod has read and written on a disk.", "namespace", "pod", "disk", "op")
	opsDesc        = desc("pod_operations_total", "Operations of a pod on a disk.", "namespace", "pod", "disk")
	limitTimeDesc  = desc("pod_limit_seconds_total", "Time that the I/O takes at the limits of its containers and of the pod: at most so long have limits held it.", "namespace", "pod", "disk")
	waitingDesc    = desc("pod_io_waiting_seconds_total", "Time in which some thread of the pod waited for I/O, whatever the cause.", "namespace", "pod")
	leftOutDesc    = desc("pods_left_out", "Pods that the metrics of pods leave out, or whose use of disks they leave out, because they would be too many series.")
	diskBytesDesc  = desc("disk_bytes_total", "Bytes that the whole node has read and written on a disk that a pod uses.", "disk", "op")
	diskOpsDesc    = desc("disk_operations_total", "Operations of the whole node on a disk that a pod uses.", "disk")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("nri_blkio_"+name, help, labels, nil)
}

// Describe is the half of prometheus.Collector that names the metrics.
func (c *Collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

// Collect implements prometheus.Collector. If the reads are late, the I/O is missing in this scrape.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	readings, node := c.read(c.pods())
	c.count(readings)
	lines, leftOut := bound(readings, maxSeries)
	p := page{out: out, name: c.name, names: map[blkio.Dev]string{}, given: map[sample]bool{}}
	p.send(leftOutDesc, prometheus.GaugeValue, float64(leftOut))
	for _, l := range lines {
		if l.disks == nil {
			p.addWaiting(l.of)
		} else {
			p.addUse(l.of, node)
		}
	}
}

// read reads the I/O of pods and of the node. If that is late, the readings are empty.
func (c *Collector) read(pods []Pod) (readings []*reading, node map[blkio.Dev]blkio.Stat) {
	ctx, cancel := context.WithTimeout(context.Background(), readDeadline)
	defer cancel()
	done := make(chan func(), 1)
	err := c.calls.Within(ctx, "", func(context.Context) error {
		var all []*reading
		for i := range pods {
			all = append(all, pods[i].read(c.cgroups))
		}
		stats, _ := c.cgroups.Cgroup(".").ReadIOStat() // without it, the metrics of disks are missing
		done <- func() { readings, node = all, stats }
		return nil
	})
	if err == nil {
		(<-done)()
		return readings, node
	}
	for i := range pods {
		readings = append(readings, &reading{pod: &pods[i]})
	}
	return readings, nil
}

// count counts the time at limits, and forgets pods that were removed. A pod starts at zero.
func (c *Collector) count(readings []*reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := map[string]*reading{}
	for _, r := range readings {
		if !r.isRead() {
			continue
		}
		if earlier := c.last[r.pod.Cgroup]; earlier != nil {
			r.countSince(earlier)
		}
		last[r.pod.Cgroup] = r
	}
	if len(last) > 0 {
		c.last = last
	}
}

// page sends metrics. Two with the same labels would be an error of the scrape, so it sends the first.
type page struct {
	out   chan<- prometheus.Metric
	name  func(blkio.Dev) string
	names map[blkio.Dev]string // those that were asked for
	given map[sample]bool
}

// sample identifies a metric.
type sample struct {
	desc   *prometheus.Desc
	labels [4]string
}

func (p *page) send(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
	s := sample{desc: d}
	for i, l := range labels {
		labels[i] = strings.ToValidUTF8(l, "?") // another label value is an error
		s.labels[i] = labels[i]
	}
	if !p.given[s] {
		p.given[s] = true
		p.out <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
}

func (p *page) disk(dev blkio.Dev) string {
	if p.names[dev] == "" {
		p.names[dev] = p.name(dev)
	}
	return p.names[dev]
}

func (p *page) addWaiting(r *reading) {
	pod := r.pod
	for _, l := range pod.Limits {
		of := [blkio.NumLimits]struct {
			desc *prometheus.Desc
			op   string
		}{{limitBytesDesc, "read"}, {limitBytesDesc, "write"}, {limitOpsDesc, "read"}, {limitOpsDesc, "write"}}[l.Key]
		p.send(of.desc, prometheus.GaugeValue, float64(l.Amount), pod.Namespace, pod.Name, p.disk(l.Dev), of.op)
	}
	if r.waiting != nil {
		p.send(waitingDesc, prometheus.CounterValue, r.waiting.Some.Seconds(), pod.Namespace, pod.Name)
	}
	if !r.isRead() {
		return
	}
	for _, dev := range pod.limited() {
		p.send(limitTimeDesc, prometheus.CounterValue, r.atLimits[dev], pod.Namespace, pod.Name, p.disk(dev))
	}
}

func (p *page) addUse(r *reading, node map[blkio.Dev]blkio.Stat) {
	pod := r.pod
	count := func(d *prometheus.Desc, value uint64, labels ...string) {
		p.send(d, prometheus.CounterValue, float64(value), labels...)
	}
	for _, dev := range r.used {
		s, disk := r.stats[pod.Cgroup][dev], p.disk(dev)
		count(bytesDesc, s.Rbytes, pod.Namespace, pod.Name, disk, "read")
		count(bytesDesc, s.Wbytes, pod.Namespace, pod.Name, disk, "write")
		count(opsDesc, s.Rios+s.Wios, pod.Namespace, pod.Name, disk)
		if all, known := node[dev]; known {
			count(diskBytesDesc, all.Rbytes, disk, "read")
			count(diskBytesDesc, all.Wbytes, disk, "write")
			count(diskOpsDesc, all.Rios+all.Wios, disk)
		}
	}
}
