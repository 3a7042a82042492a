package recovery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// total is the value of the metric.
func total(t *testing.T, r *Recovery) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(r)
	got, err := registry.Gather()
	if err != nil || len(got) != 1 {
		t.Fatalf("gathered %v, %v", got, err)
	}
	return got[0].GetMetric()[0].GetCounter().GetValue()
}

// TestStep verifies that each panic of a step is counted. It is logged with its stack once, and again if it
// lasts, also if the step succeeds in between.
func TestStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, hook := logtest.NewNullLogger()
		r := New(log)
		noKey, nilMap := func() { panic("no key") }, func() { panic("nil map") }
		for i, step := range []struct {
			after    time.Duration
			name     string
			fn       func()
			returned bool
			logged   int // lines so far
		}{
			{0, "a", func() {}, true, 0},
			{0, "a", noKey, false, 1},
			{time.Second, "a", noKey, false, 1},
			{time.Second, "a", func() {}, true, 1},
			{time.Second, "a", noKey, false, 1},
			{time.Second, "b", noKey, false, 2},
			{time.Second, "a", nilMap, false, 3},
			{reminder.Interval, "a", noKey, false, 4},
		} {
			time.Sleep(step.after)
			if got := r.Step(step.name, step.fn); got != step.returned || len(hook.AllEntries()) != step.logged {
				t.Errorf("step %d: returned %t, %d lines are logged, want %t and %d", i, got, len(hook.AllEntries()), step.returned, step.logged)
			}
		}
		if got := total(t, r); got != 6 {
			t.Errorf("%v panics are counted, want 6", got)
		}
		first := hook.AllEntries()[0]
		text := fmt.Sprint(first.Data[logrus.ErrorKey])
		if first.Level != logrus.ErrorLevel || first.Data["step"] != "a" || !strings.HasPrefix(text, "internal error: no key\n") || !strings.Contains(text, "recovery_test.go:") {
			t.Errorf("logged: %v %v", first.Message, first.Data)
		}
	})
}

// TestLoggedIsBounded verifies that panics with ever new texts do not use more and more memory.
func TestLoggedIsBounded(t *testing.T) {
	log, _ := logtest.NewNullLogger()
	r := New(log)
	for i := range 10 * maxLogged {
		r.Step("a", func() { panic(i) })
	}
	if len(r.logged) > maxLogged {
		t.Errorf("%d texts are kept", len(r.logged))
	}
}

// TestLoop verifies that a loop that panics is called again after a pause, until its context ends.
func TestLoop(t *testing.T) {
	for name, tt := range map[string]struct {
		until time.Duration
		calls int
	}{
		"goes on":           {2*Pause + Pause/2, 3},
		"ends in its pause": {Pause / 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, _ := logtest.NewNullLogger()
				ctx, cancel := context.WithTimeout(t.Context(), tt.until)
				defer cancel()
				calls, began := 0, time.Now()
				New(log).Loop(ctx, "loop", func(ctx context.Context) {
					if calls++; calls < 3 {
						panic("no key")
					}
					<-ctx.Done()
				})
				if took := time.Since(began); calls != tt.calls || took != tt.until {
					t.Errorf("%d calls in %v, want %d in %v", calls, took, tt.calls, tt.until)
				}
			})
		})
	}
}

// TestGuarded verifies that Guarded returns a panic as an error and counts it, and returns other errors
// uncounted. Count is for callers that recover themselves.
func TestGuarded(t *testing.T) {
	log, hook := logtest.NewNullLogger()
	failed := errors.New("input/output error")
	for _, r := range []*Recovery{New(log), nil} {
		if err := r.Guarded(func() error { return failed }); !errors.Is(err, failed) {
			t.Errorf("got %v", err)
		}
		if err := r.Guarded(func() error { panic("no key") }); err == nil {
			t.Error("a panic is no error")
		}
		r.Count()
		if r != nil && total(t, r) != 2 {
			t.Errorf("%v panics are counted, want 2", total(t, r))
		}
	}
	if n := len(hook.AllEntries()); n != 0 {
		t.Errorf("%d lines are logged, which is for the caller", n)
	}
}

// TestNil verifies that, without a Recovery, a panic of a step is not recovered, as tests need it.
func TestNil(t *testing.T) {
	defer func() {
		if got := recover(); got != "no key" {
			t.Errorf("recovered %v", got)
		}
	}()
	var r *Recovery
	if !r.Step("a", func() {}) {
		t.Error("a step that returned has not")
	}
	r.Loop(t.Context(), "loop", func(context.Context) { panic("no key") })
}

// broken has a metric, and panics after it.
type broken struct{ prometheus.Gauge }

func (b broken) Collect(out chan<- prometheus.Metric) {
	b.Gauge.Collect(out)
	panic("no key")
}

// TestCollector verifies that a collector that panics does not end the process, and that the metrics of others
// are collected.
func TestCollector(t *testing.T) {
	log, _ := logtest.NewNullLogger()
	r := New(log)
	registry := prometheus.NewRegistry()
	pods := prometheus.NewGauge(prometheus.GaugeOpts{Name: "pods", Help: "Pods."})
	disks := prometheus.NewGauge(prometheus.GaugeOpts{Name: "disks", Help: "Disks."})
	registry.MustRegister(r.Collector(pods), r.Collector(broken{disks}))
	before := total(t, r)
	got, err := registry.Gather()
	if err != nil || len(got) != 2 || total(t, r) != before+1 {
		t.Errorf("gathered %v, %v, %v panics", got, err, total(t, r))
	}
}
