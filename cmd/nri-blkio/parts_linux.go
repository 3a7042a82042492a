package main

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// part is one part of run, with its metrics.
type part struct {
	prometheus.Collector
	reload func(*policy.Policy)
	run    func(context.Context) error
}

// parts has parts that run in one process.
type parts []part

// reload passes a new policy to all parts.
func (ps parts) reload(p *policy.Policy) {
	for _, part := range ps {
		part.reload(p)
	}
}

// collectors returns the metrics of the parts, and of the process.
func (ps parts) collectors(r *recovery.Recovery) []prometheus.Collector {
	out := []prometheus.Collector{r}
	for _, part := range ps {
		out = append(out, r.Collector(part))
	}
	return out
}

// guarded returns parts whose reload recovers from panics, so that one part keeps no other from a policy.
func (ps parts) guarded(r *recovery.Recovery) parts {
	var out parts
	for _, p := range ps {
		reload := p.reload
		p.reload = func(pol *policy.Policy) {
			r.Step("put a policy into force", func() { reload(pol) })
		}
		out = append(out, p)
	}
	return out
}

// runner makes the parts of one process.
type runner struct {
	*app
	runOptions
	log      *logrus.Logger
	recovery *recovery.Recovery
	// policyOfRuntime is true if the runtime has sent the policy to a pre-installed plugin.
	policyOfRuntime atomic.Bool
}

// node has the handles that the limits part and the writeback part need.
type node struct {
	policy  *policy.Policy
	cgroups *cgroupfs.Hierarchy
	storage *storage.Storage
	memory  uint64 // MemTotal in bytes; 0 without /proc/meminfo
	kernel  kernel.Verdict
}

// parts returns the parts that --only selects. They do not run yet.
func (r *runner) parts(ctx context.Context) (parts, error) {
	switch r.only {
	case onlyValidator:
		return parts{r.validator()}, nil
	case onlyCluster:
		part, err := r.clusterPart()
		return parts{part}, err
	}
	n, err := r.openNode()
	if err != nil {
		return nil, err
	}
	var out parts // complete before one of them runs
	if r.only != onlyWriteback {
		limits, err := r.limits(ctx, n, func(p *policy.Policy) {
			r.policyOfRuntime.Store(true)
			out.reload(p)
		})
		if err != nil {
			return nil, err
		}
		out = append(out, limits)
	}
	if r.only != onlyLimits {
		out = append(out, r.writeback(n)...)
	}
	out = out.guarded(r.recovery)
	return out, nil
}

func (r *runner) openNode() (*node, error) {
	var (
		n   node
		err error
	)
	if n.cgroups, err = r.cgroups(); err != nil {
		return nil, err
	}
	if n.policy, err = r.opts.loadPolicy(); err != nil {
		return nil, err
	}
	if n.storage, err = r.opts.storage(); err != nil {
		return nil, err
	}
	if n.memory, err = hostfs.Root(r.opts.hostRoot).MemTotal(); err != nil {
		return nil, err
	}
	release, err := kernel.Read(os.DirFS("/proc"), os.DirFS(r.opts.hostRoot))
	if err != nil {
		r.log.WithError(err).Warn("Kernel release unknown: treating it as affected by bugs")
	}
	n.kernel = release.Writeback()
	return &n, nil
}

// validator returns the part that has no policy and reads nothing of the node.
func (r *runner) validator() part {
	v := plugin.NewValidator(r.log, r.recovery)
	run := func(ctx context.Context) error { return v.Run(ctx, r.RunConfig) }
	return part{v, func(*policy.Policy) {}, r.publishing(r.opts.stateDir, v.Health, run)}
}

// publishing returns a function that calls run, and publishes the state of its part in dir meanwhile.
func (r *runner) publishing(dir string, state func() health.Report, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		var publisher sync.WaitGroup
		publisher.Go(func() { r.publish(ctx, dir, state) })
		defer publisher.Wait()
		defer cancel()
		return run(ctx)
	}
}

func (r *runner) publish(ctx context.Context, dir string, state func() health.Report) {
	started, version := time.Now().UTC(), versionText()
	file := health.File(dir, state().Part)
	var problem reminder.Reminder
	report := func() health.Report {
		report := state()
		report.Started, report.PID, report.Version = started, os.Getpid(), version
		report.Policy, report.PolicyOfRuntime = r.opts.policy, r.policyOfRuntime.Load()
		return report
	}
	failed := func(err error) {
		if problem.Due(time.Now(), err) {
			r.log.WithError(err).WithField("file", file).Warn("Writing the plugin's state failed: status and probes report it as not running")
		}
	}
	r.recovery.Loop(ctx, "publish the state", func(ctx context.Context) { health.Publish(ctx, file, report, failed) })
}
