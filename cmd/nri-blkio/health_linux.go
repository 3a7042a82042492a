package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
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

// partRow is one part of run on this node.
type partRow struct {
	Part   string         `json:"part"`
	State  string         `json:"state"`
	Since  time.Time      `json:"since,omitzero"`
	Detail string         `json:"detail,omitempty"`
	Report *health.Report `json:"report,omitempty"`
}

// stateNotRunning is the state of a part without a fresh report.
const stateNotRunning = "not running"

// partRows reads the state of each part. files is the report of the writeback
// part, nil if it does not run.
func (a *app) partRows(files *repair.Report) ([]partRow, error) {
	limits, err := a.partRow(health.Limits)
	validator, validatorErr := a.partRow(health.Validator)
	rows := []partRow{limits, writebackRow(files)}
	if validator.State != stateNotRunning || validatorErr != nil { // few nodes have one
		rows = append(rows, validator)
	}
	return rows, errors.Join(err, validatorErr)
}

func (a *app) partRow(part string) (partRow, error) {
	row := partRow{Part: part, State: stateNotRunning}
	r, err := health.Read(a.opts.host(a.opts.stateDir), part)
	if r == nil {
		return row, err
	}
	row.State, row.Since, row.Report = r.State, r.Since, r
	row.Detail = r.Runtime
	add := func(format string, args ...any) {
		if row.Detail != "" {
			row.Detail += ", "
		}
		row.Detail += fmt.Sprintf(format, args...)
	}
	if r.Reason != "" {
		add("%s", r.Reason)
	}
	if part != health.Limits {
		return row, nil
	}
	policy := "built-in policy"
	if r.Policy != "" {
		policy = "policy " + r.Policy
	}
	add("mode %s, %s", r.Mode, policy)
	add("%s with annotations", count(r.Pods, "pod", "pods"))
	if r.NotInForce > 0 {
		add("%s not in force", count(r.NotInForce, "pod", "pods"))
	}
	if r.Failed > 0 {
		add("%s without some requested limits", count(r.Failed, "container", "containers"))
	}
	return row, nil
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// writebackRow is the row of the part that repairs writeback ownership.
func writebackRow(files *repair.Report) partRow {
	row := partRow{Part: health.Writeback, State: stateNotRunning}
	if files != nil {
		row.State, row.Detail = files.Mode, files.Reason
	}
	return row
}

// enforces reports whether limits that a new container asks for are put into
// force.
func enforces(rows []partRow) bool {
	for _, r := range rows {
		if r.Part == health.Limits {
			return r.State == health.Connected
		}
	}
	return false
}

func (a *app) printParts(rows []partRow) error {
	t := newTable(a.stdout, "PART", "STATE", "SINCE", "DETAIL")
	for _, r := range rows {
		t.row(r.Part, r.State, timeText(r.Since), r.Detail)
	}
	return t.flush()
}

// ready is for probes: it reads the state of one part and nothing else, and
// returns findings unless that part does its work.
func (a *app) ready(part string) error {
	var row partRow
	var err error
	switch part {
	case health.Limits, health.Validator:
		row, err = a.partRow(part)
	case health.Writeback:
		var files *repair.Report
		if files, err = repair.ReadReport(a.opts.host(a.opts.reportFile())); err == nil {
			row = writebackRow(files)
		}
	default:
		return usage(fmt.Errorf("--ready: unknown part %q (write %s, %s or %s)", part, health.Limits, health.Writeback, health.Validator))
	}
	if err != nil {
		return err
	}
	text := part + ": " + row.State
	if row.Detail != "" {
		text += ", " + row.Detail
	}
	fmt.Fprintln(a.stdout, oneLine(text))
	// Where the kernel offers no writeback repair, a restart does not help: the
	// part that says so has done its work.
	if row.State == health.Connected || part == health.Writeback && row.State != stateNotRunning {
		return nil
	}
	return findings()
}
