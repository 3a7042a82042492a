package main

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/part"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/policy"
)

// writeback returns the part that moves files to their writers. It loads its BPF programs once the limits part is
// registered, or now in a process without that. If the kernel lacks a feature for them, it does nothing, and the limits part
// goes on.
func (r *runner) writeback(ctx context.Context, n *node) part.Part {
	w := &writebackPart{policy: n.policy}
	load := func(ctx context.Context) (*repair.Repairer, error) { return r.loadRepairer(ctx, n) }
	alone := r.only == health.Writeback
	if alone {
		repairer, err := load(ctx)
		load = func(context.Context) (*repair.Repairer, error) { return repairer, err }
	}
	return part.Part{Metrics: []prometheus.Collector{w}, Reload: w.reload, Run: func(ctx context.Context) error {
		r.awaitRegistration(ctx)
		repairer, err := load(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			w.set(repairer)
			if err = r.repair(ctx, repairer); err == nil || alone {
				return err
			}
		}
		r.withoutRepair(err)
		if alone {
			// It waits: a restart would not help, and the rollout of a DaemonSet would stop at a node that lacks an
			// optional part.
			<-ctx.Done()
		}
		return nil
	}}
}

// loadRepairer loads the BPF programs. It also returns when ctx ends.
func (r *runner) loadRepairer(ctx context.Context, n *node) (*repair.Repairer, error) {
	var repairer *repair.Repairer
	loaded := make(chan error, 1)
	go func() {
		loaded <- r.recovery.Guarded(func() (err error) {
			repairer, err = r.newRepairer(repair.Config{
				Log: r.log, Policy: n.policy, Storage: n.storage, Cgroups: n.cgroups,
				Kernel: n.kernel, HostRoot: r.opts.hostRoot, Report: r.opts.reportFile(),
				PolicyRejected: r.watch.Rejection, Recovery: r.recovery,
			})
			return err
		})
	}()
	select {
	case err := <-loaded:
		return repairer, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// writebackPart is the part before and after it has a repairer.
type writebackPart struct {
	mu       sync.Mutex // guards all below
	policy   *policy.Policy
	repairer *repair.Repairer // nil until the BPF programs are loaded
}

// set puts the last policy into force, which may be newer than the one that the repairer was made with.
func (w *writebackPart) set(r *repair.Repairer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.repairer = r
	r.Reload(w.policy)
}

func (w *writebackPart) reload(p *policy.Policy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.policy = p; w.repairer != nil {
		w.repairer.Reload(p)
	}
}

func (w *writebackPart) get() *repair.Repairer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.repairer
}

// Describe names no metrics, because there are none without the BPF programs.
func (w *writebackPart) Describe(chan<- *prometheus.Desc) {}

// Collect is the half of prometheus.Collector that gives the values.
func (w *writebackPart) Collect(out chan<- prometheus.Metric) {
	if r := w.get(); r != nil {
		r.Collect(out)
	}
}

// repair runs the repairer as soon as no other process on this node does.
func (r *runner) repair(ctx context.Context, repairer *repair.Repairer) error {
	if err := os.MkdirAll(r.opts.stateDir, 0o700); err != nil {
		return err
	}
	lock, err := plugin.WaitLock(ctx, filepath.Join(r.opts.stateDir, "writeback.lock"), r.log)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	repairer.Run(ctx)
	return nil
}

// withoutRepair reports why files are not moved: the kernel, or the privileges of this process, do
// not allow it.
func (r *runner) withoutRepair(err error) {
	r.log.WithError(err).Warn("Writeback repair is unavailable; limits, backstop and hand-over are not affected")
	report := &repair.Report{At: time.Now().UTC(), Mode: repair.ModeUnavailable, Reason: err.Error()}
	if err := repair.WriteReport(r.opts.reportFile(), report); err != nil {
		r.log.WithError(err).Debug("Writing the report for status failed")
	}
}
