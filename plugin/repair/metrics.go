package repair

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// counts has the counters.
type counts struct {
	right, wrong, early, lost atomic.Uint64 // bytes
	moved, failed, cpu        atomic.Int64  // cpu: nanoseconds
	gaveUp                    atomic.Int64
	repairs                   prometheus.Histogram
}

// metrics has the values that the Collector reports.
type metrics struct {
	counts
	census atomic.Pointer[census] // as of the last report
}

// newRepairs returns the histogram of the time until a file is moved to its writer.
func newRepairs() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "nri_blkio_writeback_repair_seconds",
		Help:    "Time from the first write to a file of another owner until the writer owns it.",
		Buckets: []float64{.1, .25, .5, 1, 2, 5, 10, 30},
	})
}

func (c *counts) countMove(took time.Duration) {
	c.moved.Add(1)
	c.repairs.Observe(took.Seconds())
}

var (
	watchedDesc = desc("watched_filesystems", "Filesystems on disks with a write limit.")
	filesDesc   = desc("files", "Files with a writer that does not own them, where a limit matters.", "state")
	bytesDesc   = desc("bytes_total", "Bytes that became dirty where a limit matters, charged to the writer or to another cgroup.", "charged")
	repairsDesc = desc("repairs_total", "Finished repairs of files.", "result")
	earlyDesc   = desc("early_bytes_total", "Upper bound of the bytes that passes wrote out early.")
	lostDesc    = desc("lost_bytes_total", "Bytes that became dirty in more files than the kernel tables can hold.")
	gatedDesc   = desc("repair_gated", "1 while no file is moved because the kernel is not known to contain the corrections that this needs.")
	cpuDesc     = desc("repair_cpu_seconds_total", "CPU time of passes.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("nri_blkio_writeback_"+name, help, labels, nil)
}

var _ prometheus.Collector = (*Repairer)(nil)

// Describe is the half of prometheus.Collector that names the metrics.
func (r *Repairer) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(r, out) }

// states are those with a time series: all but StateRight.
var states = [...]State{StateWaiting, StateRepairing, StateContested, StateFailed}

// census counts filesystems and files at one moment.
type census struct {
	watched int
	gated   float64 // 1 or 0
	files   [len(states)]int
}

func (r *Repairer) takeCensus() *census {
	out := census{watched: len(r.watch.filesystems)}
	if mode, _ := r.gate.mode(); mode == ModeGated {
		out.gated = 1
	}
	for _, f := range r.ledger.files {
		if i := slices.Index(states[:], reported(f.state.State())); i >= 0 {
			out.files[i]++
		}
	}
	return &out
}

// Collect is the half of prometheus.Collector that gives their values. Labels have
// few values, and none that a tenant wrote.
func (r *Repairer) Collect(out chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, label ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, v, label...)
	}
	var now census
	if latest := r.metrics.census.Load(); latest != nil {
		now = *latest
	}
	send(gatedDesc, prometheus.GaugeValue, now.gated)
	send(watchedDesc, prometheus.GaugeValue, float64(now.watched))
	for i, s := range states {
		send(filesDesc, prometheus.GaugeValue, float64(now.files[i]), string(s))
	}
	c := &r.metrics
	send(bytesDesc, prometheus.CounterValue, float64(c.right.Load()), "writer")
	send(bytesDesc, prometheus.CounterValue, float64(c.wrong.Load()), "other")
	send(repairsDesc, prometheus.CounterValue, float64(c.moved.Load()), "moved")
	send(repairsDesc, prometheus.CounterValue, float64(c.failed.Load()+c.gaveUp.Load()), "failed")
	send(earlyDesc, prometheus.CounterValue, float64(c.early.Load()))
	send(lostDesc, prometheus.CounterValue, float64(c.lost.Load()))
	send(cpuDesc, prometheus.CounterValue, time.Duration(c.cpu.Load()).Seconds())
	c.repairs.Collect(out)
}
