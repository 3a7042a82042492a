package main

import (
	"context"
	"os"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/part"
	"github.com/nri-blkio/nri-blkio/plugin/policyfile"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/policy"
)

// runner makes the parts of one process.
type runner struct {
	*app
	runOptions
	log      *logrus.Logger
	recovery *recovery.Recovery
	watch    *policyfile.Watch             // nil without --policy
	beside   []func(context.Context) error // run until their context ends, as the parts do
	// awaitRegistration waits until the runtime has registered the limits part, see plugin.Plugin. It does not wait in a
	// process without that part.
	awaitRegistration func(context.Context)
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

// parts returns the parts that --only selects. They do not run yet. It reports the errors of the configuration, and leaves
// what takes long to the parts: the runtime starts containers without limits meanwhile.
func (r *runner) parts(ctx context.Context) (part.Parts, error) {
	switch r.only {
	case health.Validator:
		return part.Parts{r.validator()}, nil
	case health.Cluster:
		cluster, err := r.clusterPart()
		return part.Parts{cluster}, err
	}
	n, err := r.openNode()
	if err != nil {
		return nil, err
	}
	var out part.Parts // complete before one of them runs
	if r.only != health.Writeback {
		limits, err := r.limits(ctx, n, func(p *policy.Policy) {
			r.policyOfRuntime.Store(true)
			r.warnOf(p)
			out.Reload(p)
		})
		if err != nil {
			return nil, err
		}
		out = append(out, limits)
	}
	if r.only != health.Limits {
		out = append(out, r.writeback(ctx, n))
	}
	out = out.Guarded(r.recovery)
	r.beside = append(r.beside, n.readMounts)
	return out, nil
}

// readMounts reads the mount table beside the registration, because the first decision needs it. It waits no longer than
// until ctx ends.
func (n *node) readMounts(ctx context.Context) error {
	read := make(chan error, 1)
	go func() { read <- n.storage.Refresh(ctx) }()
	select {
	case err := <-read:
		if ctx.Err() != nil {
			return nil
		}
		return err
	case <-ctx.Done():
		return nil
	}
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
	r.warnOf(n.policy)
	if n.storage, err = storage.OpenUnread(r.opts.storageConfig()); err != nil {
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

// warnOf logs the likely mistakes of a policy.
func (r *runner) warnOf(p *policy.Policy) {
	for _, warning := range p.Warnings() {
		r.log.WithField("warning", warning).Warn("The node policy may have a mistake")
	}
}

// validator returns the part that has no policy and reads nothing of the node.
func (r *runner) validator() part.Part {
	v := plugin.NewValidator(r.log, r.recovery)
	run := func(ctx context.Context) error { return v.Run(ctx, r.RunConfig) }
	return part.Part{Metrics: []prometheus.Collector{v}, Reload: func(*policy.Policy) {}, Run: r.publishing(r.opts.stateDir, v.Health, run)}
}

// publishing returns a function that calls run, and publishes the state of its part in dir meanwhile.
func (r *runner) publishing(dir string, state func() health.Report, run func(context.Context) error) func(context.Context) error {
	publisher := part.Publisher{
		Dir: dir, Log: r.log, Recovery: r.recovery,
		Process: part.Process{PID: os.Getpid(), Version: versionText(), Policy: r.opts.policy, PolicyOfRuntime: r.policyOfRuntime.Load, PolicyRejected: r.watch.Rejection},
	}
	return publisher.Publishing(state, run)
}
