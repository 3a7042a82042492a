package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestDeployedPolicies verifies that the policy that users start from must be the default.
func TestDeployedPolicies(t *testing.T) {
	for _, file := range []string{"policy.yaml", "kubernetes/policy.yaml"} {
		o := options{policy: filepath.Join("../../deploy", file)}
		got, err := o.loadPolicy()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(policy.Default(), got); d != "" {
			t.Errorf("%s differs from the default (-want +got):\n%s", file, d)
		}
	}
}

// TestPartsReload verifies that a policy, from the file or from the runtime, reaches each part.
func TestPartsReload(t *testing.T) {
	var got []string
	part := func(name string) part {
		return part{reload: func(p *policy.Policy) { got = append(got, name+" "+string(p.Mode)) }}
	}
	parts{part("limits"), part("writeback")}.reload(policy.Default())
	if d := cmp.Diff([]string{"limits enforce", "writeback enforce"}, got); d != "" {
		t.Error(d)
	}
}

// TestPartsGoOn: a part that panics, with a new policy or as its metrics are collected, keeps neither
// the other parts from the policy nor their metrics from a scrape.
func TestPartsGoOn(t *testing.T) {
	log, hook := test.NewNullLogger()
	panics := recovery.New(log)
	var got []policy.Mode
	broken := part{brokenCollector{}, func(*policy.Policy) { panic("no such key") }, nil}
	pods := prometheus.NewGauge(prometheus.GaugeOpts{Name: "pods", Help: "Pods."})
	sound := part{pods, func(p *policy.Policy) { got = append(got, p.Mode) }, nil}
	ps := parts{broken, sound}.guarded(panics)
	ps.reload(policy.Default())
	if d := cmp.Diff([]policy.Mode{policy.ModeEnforce}, got); d != "" {
		t.Error(d)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(ps.collectors(panics)...)
	var names []string
	metrics, err := registry.Gather()
	for _, m := range metrics {
		names = append(names, m.GetName())
	}
	if d := cmp.Diff([]string{"nri_blkio_recovered_panics_total", "pods"}, names); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	var steps []any
	for _, e := range hook.AllEntries() {
		steps = append(steps, e.Data["step"])
	}
	if d := cmp.Diff([]any{"put a policy into force", "collect metrics", "collect metrics"}, steps); d != "" {
		t.Error(d)
	}
}

type brokenCollector struct{}

func (brokenCollector) Describe(chan<- *prometheus.Desc) {}
func (brokenCollector) Collect(chan<- prometheus.Metric) { panic("no such key") }

// TestPublishGoesOn: the state of a part is published again after a panic, and recovers by itself.
func TestPublishGoesOn(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log, hook := test.NewNullLogger()
		r := runner{app: &app{opts: options{stateDir: dir}}, log: log, recovery: recovery.New(log)}
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		go r.publish(ctx, dir, func() health.Report {
			if calls++; calls == 2 {
				panic("no such key")
			}
			return health.Report{Part: health.Limits, State: health.Connected}
		})
		time.Sleep(2*recovery.Pause + health.Interval)
		synctest.Wait()
		report, err := health.Read(dir, health.Limits)
		if err != nil || report == nil || report.PID != os.Getpid() {
			t.Errorf("the report is %+v, %v", report, err)
		}
		if n := len(hook.AllEntries()); n != 1 {
			t.Errorf("%d lines are logged, want 1", n)
		}
		cancel()
		synctest.Wait()
	})
}

// TestValidatorNeedsNoNode verifies that the validator opens neither cgroupfs nor the node's storage.
func TestValidatorNeedsNoNode(t *testing.T) {
	log, _ := test.NewNullLogger()
	a := &app{opts: options{hostRoot: "/absent", policy: "/absent"}}
	r := runner{app: a, runOptions: runOptions{only: onlyValidator}, log: log}
	got, err := r.parts(t.Context())
	if err != nil || len(got) != 1 {
		t.Errorf("%d parts, %v", len(got), err)
	}
}
