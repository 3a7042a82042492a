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
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// part is one part of run, with its metrics.
type part struct {
	prometheus.Collector
	reload func(*policy.Policy)
	run    func(context.Context) error
}

// parts run in one process.
type parts []part

// reload passes a new policy to all parts.
func (ps parts) reload(p *policy.Policy) {
	for _, part := range ps {
		part.reload(p)
	}
}

func (ps parts) collectors() []prometheus.Collector {
	var out []prometheus.Collector
	for _, part := range ps {
		out = append(out, part)
	}
	return out
}

// runner makes the parts of one process.
type runner struct {
	*app
	runOptions
	log *logrus.Logger
	// policyOfRuntime is true if the runtime has sent the policy to a pre-installed plugin.
	policyOfRuntime atomic.Bool
}

// node is what the limits part and the writeback part work with.
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
	v := plugin.NewValidator(r.log)
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
	health.Publish(ctx, file, func() health.Report {
		report := state()
		report.Started, report.PID, report.Version = started, os.Getpid(), version
		report.Policy, report.PolicyOfRuntime = r.opts.policy, r.policyOfRuntime.Load()
		return report
	}, func(err error) {
		if problem.Due(time.Now(), err) {
			r.log.WithError(err).WithField("file", file).Warn("Writing the plugin's state failed: status and probes report it as not running")
		}
	})
}
