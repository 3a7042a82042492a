package part

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestPartsReload verifies that a policy, from the file or from the runtime, reaches each part.
func TestPartsReload(t *testing.T) {
	var got []string
	part := func(name string) Part {
		return Part{Reload: func(p *policy.Policy) { got = append(got, name+" "+string(p.Mode)) }}
	}
	Parts{part("limits"), part("writeback")}.Reload(policy.Default())
	if d := cmp.Diff([]string{"limits enforce", "writeback enforce"}, got); d != "" {
		t.Error(d)
	}
}

// TestPartsGoOn verifies that a part that panics, when it gets a new policy or when its metrics are collected,
// does not prevent the other parts from getting the policy, nor their metrics from being served.
func TestPartsGoOn(t *testing.T) {
	log, hook := test.NewNullLogger()
	panics := recovery.New(log)
	var got []policy.Mode
	broken := Part{Metrics: []prometheus.Collector{brokenCollector{}}, Reload: func(*policy.Policy) { panic("no such key") }}
	pods := prometheus.NewGauge(prometheus.GaugeOpts{Name: "pods", Help: "Pods."})
	sound := Part{Metrics: []prometheus.Collector{pods}, Reload: func(p *policy.Policy) { got = append(got, p.Mode) }}
	ps := Parts{broken, sound}.Guarded(panics)
	ps.Reload(policy.Default())
	if d := cmp.Diff([]policy.Mode{policy.ModeEnforce}, got); d != "" {
		t.Error(d)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(ps.Collectors(panics)...)
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

// TestRun verifies that the end of the context ends all parts without an error, and a part that fails ends the others.
func TestRun(t *testing.T) {
	failure := errors.New("no socket")
	for _, want := range []error{nil, failure} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := false
			waits := Part{Run: func(ctx context.Context) error {
				<-ctx.Done()
				ended = true
				return nil
			}}
			other := Part{Run: func(context.Context) error {
				if want == nil {
					cancel()
				}
				return want
			}}
			if err := (Parts{waits, other}).Run(ctx); !errors.Is(err, want) || !ended {
				t.Errorf("%v, want %v; the other part has ended: %t", err, want, ended)
			}
		})
	}
}
