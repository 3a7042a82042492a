package follow

import (
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
)

// The properties of decisions are tests of package costsim. These are what no simulation has.

var controller = Controller{
	Limits: diskmodel.Limits{Ops: 1500, Bytes: 60 << 20},
	Safe:   blkio.CostModel{Rbps: 61027123, RSeqIOPS: 1455, RRandIOPS: 1455, Wbps: 61027123, WSeqIOPS: 1455, WRandIOPS: 1455},
	Name:   func(cgroup string) string { return "cgroup " + cgroup },
}

// alone is a look at one cgroup that reads 32 KiB, and gets what the safe model gives it.
func alone(at time.Duration) Look {
	use := Use{Weight: 1, Ops: 860, Bytes: 860 * (32 << 10), Cost: 1, Wait: -1}
	return Look{At: at, Past: time.Second, Uses: map[string]Use{"a": use}, Ops: use.Ops, Bytes: use.Bytes}
}

// after returns the decision after so many looks, which a function may change.
func after(d Decision, looks int, change func(*Look)) Decision {
	for i := range looks {
		l := alone(d.Since + time.Duration(i+1)*d.Interval())
		change(&l)
		if d = controller.Next(d, l); d.Write {
			return d
		}
	}
	return d
}

func same(*Look) {}

// TestSlowLooks verifies that the model does not move, or moves back, while looks take too long.
func TestSlowLooks(t *testing.T) {
	slow := func(l *Look) { l.Took = 2 * mostTime }
	if d := after(Decision{}, 30, slow); d.State != Safe || d.Reason != tooSlow {
		t.Errorf("%s: %s", d.State, d.Reason)
	}
	d := after(Decision{}, 30, same)
	if d.State != Probing || !strings.HasPrefix(d.Reason, "cgroup a wait for io.cost: from 57 and 45 to 95 and 74 %") {
		t.Fatalf("%s: %s", d.State, d.Reason)
	}
	if d = after(d, 4, slow); d.State != Safe || !d.Write || d.Reason != tooSlow || d.Model != controller.Safe {
		t.Errorf("%+v", d)
	}
}

// TestBack verifies that no model is written for ten minutes after one could not be written.
func TestBack(t *testing.T) {
	d := after(Decision{}, 30, same)
	failed := controller.Back(d, d.Since, "no answer")
	if failed.State != Safe || !failed.Write || failed.Model != controller.Safe || failed.Reason != "no answer" {
		t.Errorf("%+v", failed)
	}
	if d := after(failed, 590, same); d.Write || d.Reason != "no answer" {
		t.Errorf("%+v", d)
	}
	if d := after(failed, 620, same); d.State != Probing {
		t.Errorf("%s: %s", d.State, d.Reason)
	}
}

// TestOtherIO verifies that I/O of no cgroup, such as that of a journal, leaves the others less to move to, and is no cgroup that
// begins.
func TestOtherIO(t *testing.T) {
	whole := after(Decision{}, 30, same)
	d := after(Decision{}, 30, func(l *Look) { l.Ops, l.Bytes = l.Ops+150, l.Bytes+150*4096 })
	if d.State != Probing || d.Model.RRandIOPS >= whole.Model.RRandIOPS {
		t.Errorf("%s: %s beside %s; %s", d.State, d.Model, whole.Model, d.Reason)
	}
	if d = after(d, 8, func(l *Look) { l.Ops, l.Bytes = l.Ops+100, l.Bytes+100*4096 }); d.State != Probing {
		t.Errorf("%s: %s", d.State, d.Reason)
	}
}

// TestSafePrices verifies that no size of any kind of operation costs more than by the safe model, which has lower prices for sequential
// operations and for writes here.
func TestSafePrices(t *testing.T) {
	c := controller
	c.Safe.RSeqIOPS, c.Safe.WSeqIOPS, c.Safe.Wbps = 2066, 1960, 64<<20
	for _, size := range []float64{4 << 10, 32 << 10, 256 << 10, 1 << 20} {
		ops := .9 / c.charge(Use{Ops: 1, Bytes: size})
		m, _, _ := c.best(map[string]Use{"a": {Weight: 1, Ops: ops, Bytes: ops * size, Cost: 1, Wait: 1}}, mostTarget)
		for _, tt := range []struct{ bps, iops, safeBps, safeIOPS uint64 }{
			{m.Rbps, m.RSeqIOPS, c.Safe.Rbps, c.Safe.RSeqIOPS},
			{m.Rbps, m.RRandIOPS, c.Safe.Rbps, c.Safe.RRandIOPS},
			{m.Wbps, m.WSeqIOPS, c.Safe.Wbps, c.Safe.WSeqIOPS},
			{m.Wbps, m.WRandIOPS, c.Safe.Wbps, c.Safe.WRandIOPS},
		} {
			if tt.bps < tt.safeBps || tt.iops < tt.safeIOPS {
				t.Errorf("%g bytes: %s costs more than %s", size, m, c.Safe)
			}
		}
	}
}

func TestNames(t *testing.T) {
	if got := controller.names([]string{"a"}); got != "cgroup a" {
		t.Error(got)
	}
	if got := controller.names([]string{"a", "b", "c"}); got != "cgroup a and 2 more" {
		t.Error(got)
	}
}
