package podmetrics

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
)

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

// disk returns the name of a disk.
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
