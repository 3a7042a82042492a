package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/policy"
)

// defaultStateDir is where a process tells another what it does: a tmpfs.
const defaultStateDir = "/run/nri-blkio"

func (o *options) addStateFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.stateDir, "state-dir", defaultStateDir, "directory where run writes its state for status")
}

func (o *options) reportFile() string { return health.File(o.stateDir, health.Writeback) }

// kernelVerdict judges the running kernel; one whose release cannot be read is unknown.
func (a *app) kernelVerdict(log logrus.FieldLogger) kernel.Verdict {
	release, err := kernel.Read(os.DirFS("/proc"), os.DirFS(a.opts.hostRoot))
	if err != nil {
		log.WithError(err).Warn("Kernel release unknown: treating it as affected by bugs")
	}
	return release.Writeback()
}

// newRepairer is the part that gives files to who writes them.
func (a *app) newRepairer(log *logrus.Logger, tree *cgroupfs.Hierarchy, n *node) (part, error) {
	r, err := repair.New(repair.Config{
		Log: log, Policy: n.policy, Storage: n.storage, Cgroups: tree,
		Kernel: a.kernelVerdict(log), HostRoot: a.opts.hostRoot, Report: a.opts.reportFile(),
	})
	if err != nil {
		return part{}, err
	}
	return part{r, r.Reload, func(ctx context.Context) error {
		if err := os.MkdirAll(a.opts.stateDir, 0o700); err != nil {
			return err
		}
		lock, err := plugin.WaitLock(ctx, filepath.Join(a.opts.stateDir, "writeback.lock"), log)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		defer lock.Close()
		r.Run(ctx)
		return nil
	}}, nil
}

// apart is a part whose failure does not end the others: limits come first.
func (a *app) apart(log *logrus.Logger, p part) part {
	run := p.run
	p.run = func(ctx context.Context) error {
		if err := run(ctx); err != nil {
			a.withoutRepair(log, err)
		}
		return nil
	}
	return p
}

// unavailable is the part on a node whose kernel does not offer what it needs. It
// goes on and does nothing: a restart would not help, and a DaemonSet's rollout
// would stop at a node that lacks an optional part.
func (a *app) unavailable(log *logrus.Logger, err error) part {
	return part{prometheus.NewRegistry(), func(*policy.Policy) {}, func(ctx context.Context) error {
		a.withoutRepair(log, err)
		<-ctx.Done()
		return nil
	}}
}

// withoutRepair says what holds where the kernel, or who runs this, does not allow
// to look.
func (a *app) withoutRepair(log *logrus.Logger, err error) {
	log.WithError(err).Warn("Writeback repair is unavailable; limits, backstop and hand-over are not affected")
	report := &repair.Report{At: time.Now().UTC(), Mode: repair.ModeUnavailable, Reason: err.Error()}
	if err := repair.WriteReport(a.opts.reportFile(), report); err != nil {
		log.WithError(err).Debug("Writing the report for status failed")
	}
}
