package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/part"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/policy"
)

// writeback returns the part that moves files to their writers. It returns none if the kernel lacks a feature
// for that and another part runs here.
func (r *runner) writeback(n *node) part.Parts {
	repairer, err := repair.New(repair.Config{
		Log: r.log, Policy: n.policy, Storage: n.storage, Cgroups: n.cgroups,
		Kernel: n.kernel, HostRoot: r.opts.hostRoot, Report: r.opts.reportFile(),
		PolicyRejected: r.watch.Rejection, Recovery: r.recovery,
	})
	alone := r.only == onlyWriteback
	switch {
	case err == nil:
		return part.Parts{{Collector: repairer, Reload: repairer.Reload, Run: func(ctx context.Context) error {
			err := r.repair(ctx, repairer)
			if err == nil || alone {
				return err
			}
			r.withoutRepair(err) // and the limits part goes on
			return nil
		}}}
	case alone:
		// It waits: a restart would not help, and the rollout of a DaemonSet would stop at a
		// node that lacks an optional part.
		return part.Parts{{Collector: prometheus.NewRegistry(), Reload: func(*policy.Policy) {}, Run: func(ctx context.Context) error {
			r.withoutRepair(err)
			<-ctx.Done()
			return nil
		}}}
	}
	r.withoutRepair(err)
	return nil
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
