package part

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

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
