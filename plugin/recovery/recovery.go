// Package recovery keeps loops running when one of their steps panics. A panic that is not
// recovered ends the process, and the runtime starts a pre-installed plugin only once.
package recovery

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// Pause is the time between a panic in a loop and the next step of the loop, so that a panic that
// occurs each time uses no CPU.
const Pause = time.Second

// maxLogged is the number of panics that are remembered as logged.
const maxLogged = 64

// Recovery recovers from panics. It counts them, and logs each with its stack when it occurs first
// and every ten minutes while it goes on. Its methods are safe for concurrent use.
//
// Step and Loop of a nil Recovery recover from nothing: tests see the panic, unless they are about
// the recovery.
type Recovery struct {
	log   logrus.FieldLogger
	count atomic.Int64

	mu     sync.Mutex // guards logged
	logged map[string]time.Time
}

// New returns a Recovery that logs to log.
func New(log logrus.FieldLogger) *Recovery {
	return &Recovery{log: log, logged: map[string]time.Time{}}
}

// Count counts a panic that the caller has recovered from, and logs.
func (r *Recovery) Count() {
	if r != nil {
		r.count.Add(1)
	}
}

// Guarded is bounded.Recovered, and counts a panic. The caller logs the error.
func (r *Recovery) Guarded(fn func() error) error {
	panicked, err := bounded.Recovered(fn)
	if panicked {
		r.Count()
	}
	return err
}

// Step runs one step of a loop, and reports whether it returned. A panic is counted and logged.
func (r *Recovery) Step(name string, fn func()) (returned bool) {
	if r == nil {
		fn()
		return true
	}
	err := r.Guarded(func() error {
		fn()
		return nil
	})
	if err == nil {
		return true
	}
	if r.isDue(name+": "+err.Error(), time.Now()) {
		r.log.WithField("step", name).WithError(err).Error("Recovered from a panic")
	}
	return false
}

// isDue reports whether a panic is to be logged now. A step may panic for one pod and not for
// others, so a step that returns does not end the problem.
func (r *Recovery) isDue(text string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, known := r.logged[text]; known && now.Sub(at) < reminder.Interval {
		return false
	}
	if len(r.logged) >= maxLogged {
		clear(r.logged)
	}
	r.logged[text] = now
	return true
}

// Loop calls fn, which is to run until ctx ends. After a panic it calls fn again, after a pause.
func (r *Recovery) Loop(ctx context.Context, name string, fn func(context.Context)) {
	for !r.Step(name, func() { fn(ctx) }) {
		if reminder.Sleep(ctx, Pause); ctx.Err() != nil {
			return
		}
	}
}

var panicsDesc = prometheus.NewDesc("nri_blkio_recovered_panics_total",
	"Panics that the process has recovered from. Each is a bug of the plugin.", nil, nil)

var _ prometheus.Collector = (*Recovery)(nil)

// Describe is the half of prometheus.Collector that names the metric.
func (r *Recovery) Describe(out chan<- *prometheus.Desc) { out <- panicsDesc }

// Collect is the half of prometheus.Collector that gives its value.
func (r *Recovery) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(panicsDesc, prometheus.CounterValue, float64(r.count.Load()))
}

// Collector returns a collector with the metrics of c. A registry calls collectors in goroutines of
// its own, so a panic of c is recovered here. The scrape then lacks metrics of c.
func (r *Recovery) Collector(c prometheus.Collector) prometheus.Collector { return &collector{c, r} }

type collector struct {
	prometheus.Collector
	recovery *Recovery
}

func (c *collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.recovery.Step("collect metrics", func() { c.Collector.Collect(out) })
}
