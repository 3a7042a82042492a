package cluster

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-blkio/nri-blkio/plugin/health"
)

// status is what the part reports of itself.
type status struct {
	documents           atomic.Int64 // that are in the exchange directory
	writes              atomic.Int64
	succeeded, rejected atomic.Int64 // requests
	events              eventCounts

	mu    sync.Mutex // guards the fields below
	err   error      // of the last write of a document
	since time.Time  // when err became an error or nil
}

// eventCounts has the numbers of Events for metrics.
type eventCounts struct{ created, counted, refused, pending atomic.Int64 }

func (s *status) count(err error) {
	if err == nil {
		s.succeeded.Add(1)
	} else {
		s.rejected.Add(1)
	}
}

func (s *status) wrote(now time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() || (s.err == nil) != (err == nil) {
		s.since = now
	}
	s.err = err
}

// writing returns since when documents can be written or cannot, with the last error.
func (s *status) writing() (ok bool, since time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil, s.since, s.err
}

// Health returns the state of the part. It is connected while the API server answers and documents
// can be written. An object that cannot be read is a reason, and not another state: it concerns the
// pods that name it.
func (p *Part) Health() health.Report {
	r := health.Report{Part: health.Cluster, State: health.Connected, Pods: int(p.status.documents.Load())}
	answers, since, err := p.contact.state()
	writes, writesSince, writeErr := p.status.writing()
	r.Since = since
	switch {
	case !answers:
		r.State, r.Reason = health.Disconnected, "no answer of the API server yet"
		if err != nil {
			r.Reason = "the API server does not answer: " + err.Error()
		}
		return r
	case !writes:
		r.State, r.Since, r.Reason = health.Disconnected, writesSince, writeErr.Error()
		return r
	case writesSince.After(since):
		r.Since = writesSince
	}
	if _, failed, err := p.objects.problem(); failed > 0 {
		r.Reason = fmt.Sprintf("%d objects cannot be read: %v", failed, err)
	}
	return r
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("nri_blkio_cluster_"+name, help, labels, nil)
}

var (
	connectedDesc = desc("connected", "1 while the API server answers and documents can be written.")
	documentsDesc = desc("documents", "Documents of pods in the exchange directory.")
	writesDesc    = desc("documents_written_total", "Documents that were new or had changed.")
	watchedDesc   = desc("objects", "Objects that are watched for pods; failed: the last request for it failed.", "state")
	requestsDesc  = desc("requests_total", "Requests to the API server.", "result")
	eventsDesc    = desc("events_total", "Events of pods that were created, counted again, or refused by the API server.", "result")
	pendingDesc   = desc("events_pending", "Events that wait for the API server, or for the rate at which they are sent.")
)

// Describe is the half of prometheus.Collector that names the metrics.
func (p *Part) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, out) }

// Collect is the half of prometheus.Collector that gives their values.
func (p *Part) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int, label ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), label...)
	}
	counter := func(d *prometheus.Desc, n *atomic.Int64, label ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n.Load()), label...)
	}
	connected := 0
	if p.Health().State == health.Connected {
		connected = 1
	}
	gauge(connectedDesc, connected)
	gauge(documentsDesc, int(p.status.documents.Load()))
	counter(writesDesc, &p.status.writes)
	watched, failed, _ := p.objects.problem()
	gauge(watchedDesc, watched-failed, "watched")
	gauge(watchedDesc, failed, "failed")
	counter(requestsDesc, &p.status.succeeded, "ok")
	counter(requestsDesc, &p.status.rejected, "failed")
	counter(eventsDesc, &p.status.events.created, "created")
	counter(eventsDesc, &p.status.events.counted, "counted")
	counter(eventsDesc, &p.status.events.refused, "refused")
	gauge(pendingDesc, int(p.status.events.pending.Load()))
}

// contact is whether the API server answers. The watch of the pods, which each node has, finds out;
// all other requests wait until it does. So a node sends one request at a time to an API server that
// is overloaded or away, and not one for each object.
type contact struct {
	mu    sync.Mutex    // guards the fields below
	opens chan struct{} // closed while the API server answers
	err   error         // the last failure; nil while it answers
	since time.Time
}

func newContact(now time.Time) *contact {
	return &contact{opens: make(chan struct{}), since: now}
}

func (c *contact) report(now time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.isOpen()
	switch {
	case err == nil && !was:
		close(c.opens)
		c.since = now
	case err != nil && was:
		c.opens = make(chan struct{})
		c.since = now
	}
	c.err = err
}

// isOpen is called with the lock.
func (c *contact) isOpen() bool {
	select {
	case <-c.opens:
		return true
	default:
		return false
	}
}

// state returns whether the API server answers, since when, and the last failure.
func (c *contact) state() (answers bool, since time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isOpen(), c.since, c.err
}

// wait returns when the API server answers, with an error if the context ends before.
func (c *contact) wait(ctx context.Context) error {
	select {
	case <-c.waiting():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *contact) waiting() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opens
}
