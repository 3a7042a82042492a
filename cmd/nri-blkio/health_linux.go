package main

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// publishing returns run with its part's state published for as long as run
// lasts.
func (a *app) publishing(log logrus.FieldLogger, state func() health.Report, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		var publisher sync.WaitGroup
		publisher.Go(func() { a.publish(ctx, log, state) })
		defer publisher.Wait()
		defer cancel()
		return run(ctx)
	}
}

func (a *app) publish(ctx context.Context, log logrus.FieldLogger, state func() health.Report) {
	started, version := time.Now().UTC(), versionText()
	file := health.File(a.opts.stateDir, state().Part)
	var problem reminder.Reminder
	health.Publish(ctx, file, func() health.Report {
		r := state()
		r.Started, r.PID, r.Version, r.Policy = started, os.Getpid(), version, a.opts.policy
		return r
	}, func(err error) {
		if problem.Due(time.Now(), err) {
			log.WithError(err).WithField("file", file).Warn("Writing the plugin's state failed: status and probes report it as not running")
		}
	})
}
