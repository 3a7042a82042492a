// Package part runs the parts of "nri-blkio run" that share a process: a policy reaches each of them, their metrics
// are served together, and each publishes its state. A panic in one part keeps no other from its work.
package part

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Part is one part of run.
type Part struct {
	Metrics []prometheus.Collector
	Reload  func(*policy.Policy)        // puts a new policy into force
	Run     func(context.Context) error // runs until the context ends
}

// Parts are the parts of one process.
type Parts []Part

// Guarded returns parts whose Reload recovers from panics, so that one part keeps no other from a policy.
func (ps Parts) Guarded(r *recovery.Recovery) Parts {
	var out Parts
	for _, p := range ps {
		reload := p.Reload
		p.Reload = func(pol *policy.Policy) {
			r.Step("put a policy into force", func() { reload(pol) })
		}
		out = append(out, p)
	}
	return out
}

// Reload passes a new policy to all parts.
func (ps Parts) Reload(p *policy.Policy) {
	for _, part := range ps {
		part.Reload(p)
	}
}

// Collectors returns the metrics of the parts, and of the process.
func (ps Parts) Collectors(r *recovery.Recovery) []prometheus.Collector {
	out := []prometheus.Collector{r}
	for _, part := range ps {
		for _, c := range part.Metrics {
			out = append(out, r.Collector(c))
		}
	}
	return out
}

// Run runs all parts, and what works beside them, until ctx ends, or until one fails. Then it ends the others, and returns the
// error.
func (ps Parts) Run(ctx context.Context, beside ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range beside {
		group.Go(func() error { return run(ctx) })
	}
	for _, part := range ps {
		group.Go(func() error { return part.Run(ctx) })
	}
	return group.Wait()
}

// Publisher publishes the states of the parts of a process for status and probes.
type Publisher struct {
	Dir      string // the state directory
	Process  Process
	Log      logrus.FieldLogger
	Recovery *recovery.Recovery
}

// Process has the facts about the process that are in each report.
type Process struct {
	PID     int
	Version string
	Policy  string // path of the policy file; "" for the built-in policy
	// PolicyOfRuntime reports whether the runtime has sent the policy to a pre-installed plugin.
	PolicyOfRuntime func() bool
	// PolicyRejected returns the reason why the policy file was rejected, or "".
	PolicyRejected func() string
}

// Publishing returns a function that calls run, and publishes the state of its part meanwhile.
func (p *Publisher) Publishing(state func() health.Report, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		var publisher sync.WaitGroup
		publisher.Go(func() { p.publish(ctx, state) })
		defer publisher.Wait()
		defer cancel()
		return run(ctx)
	}
}

func (p *Publisher) publish(ctx context.Context, state func() health.Report) {
	started := time.Now().UTC()
	file := health.File(p.Dir, state().Part)
	var problem reminder.Reminder
	report := func() health.Report {
		r := state()
		r.Started, r.PID, r.Version = started, p.Process.PID, p.Process.Version
		r.Policy, r.PolicyOfRuntime = p.Process.Policy, p.Process.PolicyOfRuntime()
		r.PolicyRejected = p.Process.PolicyRejected()
		return r
	}
	failed := func(err error) {
		if problem.Due(time.Now(), err) {
			p.Log.WithError(err).WithField("file", file).Warn("Writing the plugin's state failed: status and probes report it as not running")
		}
	}
	p.Recovery.Loop(ctx, "publish the state", func(ctx context.Context) { health.Publish(ctx, file, report, failed) })
}
