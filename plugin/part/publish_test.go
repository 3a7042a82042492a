package part

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
)

// accepted is the PolicyRejected of a process whose policy is in force.
func accepted() string { return "" }

// TestPublishGoesOn verifies that the state of a part is published again after a panic.
func TestPublishGoesOn(t *testing.T) {
	process := Process{PID: 7, PolicyOfRuntime: func() bool { return false }, PolicyRejected: accepted}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log, hook := test.NewNullLogger()
		p := Publisher{Dir: dir, Log: log, Recovery: recovery.New(log), Process: process}
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		go p.publish(ctx, func() health.Report {
			if calls++; calls == 2 {
				panic("no such key")
			}
			return health.Report{Part: health.Limits, State: health.Connected}
		})
		time.Sleep(2*recovery.Pause + health.Interval)
		synctest.Wait()
		report, err := health.Read(dir, health.Limits)
		if err != nil || report == nil || report.PID != process.PID {
			t.Errorf("the report is %+v, %v", report, err)
		}
		if n := len(hook.AllEntries()); n != 1 {
			t.Errorf("%d lines are logged, want 1", n)
		}
		cancel()
		synctest.Wait()
	})
}

// TestPublishing verifies that the state of a part is published with the facts about its process while the part runs, and
// no longer.
func TestPublishing(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log, _ := test.NewNullLogger()
		process := Process{PID: 7, Version: "v1", Policy: "/p.yaml", PolicyOfRuntime: func() bool { return true }, PolicyRejected: func() string { return "line 3" }}
		p := Publisher{Dir: dir, Log: log, Recovery: recovery.New(log), Process: process}
		state := func() health.Report { return health.Report{Part: health.Validator, State: health.Connected} }
		failure := errors.New("no socket")
		run := p.Publishing(state, func(context.Context) error {
			synctest.Wait()
			got, err := health.Read(dir, health.Validator)
			want := &health.Report{
				Part: health.Validator, State: health.Connected, PID: 7, Version: "v1", Policy: "/p.yaml", PolicyOfRuntime: true, PolicyRejected: "line 3",
				At: time.Now().UTC(), Started: time.Now().UTC(),
			}
			sinceBoot := cmpopts.IgnoreFields(health.Report{}, "SinceBoot")
			if d := cmp.Diff(want, got, cmpopts.EquateApproxTime(time.Second), sinceBoot); d != "" || err != nil {
				t.Errorf("%v, -want +got:\n%s", err, d)
			}
			return failure
		})
		if err := run(t.Context()); !errors.Is(err, failure) {
			t.Error(err)
		}
		if got, err := health.Read(dir, health.Validator); got != nil || err != nil {
			t.Errorf("after the part has ended: %+v, %v", got, err)
		}
	})
}

// TestPublishFails verifies that a state that cannot be written is logged once, not with each report.
func TestPublishFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		log, hook := test.NewNullLogger()
		p := Publisher{Dir: dir, Log: log, Recovery: recovery.New(log), Process: Process{PolicyOfRuntime: func() bool { return false }, PolicyRejected: accepted}}
		state := func() health.Report { return health.Report{Part: health.Limits, State: health.Connected} }
		run := p.Publishing(state, func(context.Context) error {
			time.Sleep(3*health.Interval + time.Second)
			return nil
		})
		if err := run(t.Context()); err != nil {
			t.Error(err)
		}
		if n := len(hook.AllEntries()); n != 1 || hook.LastEntry().Data["file"] != health.File(dir, health.Limits) {
			t.Errorf("%d lines are logged: %v", n, hook.LastEntry())
		}
	})
}
