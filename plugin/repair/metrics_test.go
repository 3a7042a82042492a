package repair

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/plugin/repair/filestate"
)

// gather returns the values of the collector's metrics, by name and label.
func gather(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "nri_blkio_writeback_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			switch {
			case m.GetHistogram() != nil:
				out[name] = float64(m.GetHistogram().GetSampleCount())
			default:
				out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return out
}

// TestCollect verifies that the metrics have the values of the last census, and the counts since then.
func TestCollect(t *testing.T) {
	n := newNodeTest(t)
	want := map[string]float64{
		"watched_filesystems": 0, "repair_gated": 0, "files waiting": 0, "files repairing": 0, "files contested": 0, "files failed": 0,
		"bytes_total writer": 0, "bytes_total other": 0, "repairs_total moved": 0, "repairs_total failed": 0,
		"early_bytes_total": 0, "lost_bytes_total": 0, "repair_cpu_seconds_total": 0, "repair_seconds": 0,
	}
	if diff := cmp.Diff(want, gather(t, n.Repairer)); diff != "" {
		t.Errorf("at first (-want, +got):\n%s", diff)
	}
	n.writes(n.watches(0), "one", "a", 3)
	events := []filestate.Event{filestate.Misplaced, filestate.Failure, filestate.Placed}
	for _, f := range n.ledger.files {
		f.state.Handle(events[0], false)
		events = events[1:]
	}
	c := &n.metrics
	c.right.Add(1)
	c.wrong.Add(2)
	c.early.Add(3)
	c.lost.Store(4)
	c.failed.Add(5)
	c.gaveUp.Store(6)
	c.cpu.Add(int64(7 * time.Second))
	c.countMove(time.Second)
	n.gate.kernel = kernel.Verdict{State: kernel.Affected}
	n.publish(n.now)
	maps.Copy(want, map[string]float64{
		"watched_filesystems": 1, "repair_gated": 1, "files waiting": 1, "files failed": 1,
		"bytes_total writer": 1, "bytes_total other": 2, "early_bytes_total": 3, "lost_bytes_total": 4,
		"repairs_total failed": 11, "repairs_total moved": 1, "repair_seconds": 1, "repair_cpu_seconds_total": 7,
	})
	if diff := cmp.Diff(want, gather(t, n.Repairer)); diff != "" {
		t.Errorf("then (-want, +got):\n%s", diff)
	}
}
