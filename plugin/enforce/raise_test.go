package enforce

import (
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// withBursts is a pod of two containers with a limit of 5 and a burst of 9 on one disk, and their sum as its backstop.
func withBursts() plan.Plan {
	p := planOf(a, b)
	for i := range p.Containers {
		s := limit(sda, 5)[0]
		s.Burst = blkio.Burst{Rate: 9, Seconds: 1}
		p.Containers[i].Want = policy.NewSettings(s)
		p.Containers[i].Record.Settings = p.Containers[i].Want
	}
	s := limit(sda, 10)[0]
	s.Source = policy.Source{Kind: policy.FromBackstop}
	p.Pod.Want = policy.NewSettings(s)
	p.Pod.Record.Settings = p.Pod.Want
	return p
}

func only(cgroup string) func(string, blkio.Address) bool {
	return func(of string, _ blkio.Address) bool { return of == cgroup }
}

// TestRaise verifies that a burst is in force with the backstop of the pod, in the order of other limits, that the record has the limit below
// it, and that the comparison knows the raised value.
func TestRaise(t *testing.T) {
	k := newKernel(t, pod, a, b)
	w := &Written{}
	targets := NewTargets(withBursts(), w)
	k.apply(targets, "")
	k.writes = nil
	for _, step := range []struct {
		raised string
		want   []string
	}{
		{a, []string{pod + "/io.max 8:0 wbps=14", a + "/io.max 8:0 wbps=9"}},
		{b, []string{a + "/io.max 8:0 wbps=5, on record", b + "/io.max 8:0 wbps=9"}},
		{"", []string{b + "/io.max 8:0 wbps=5, on record", pod + "/io.max 8:0 wbps=10, on record"}},
	} {
		if !targets.Raise(only(step.raised)) {
			t.Errorf("raise %q: no change", step.raised)
		}
		k.apply(targets, "")
		if diff := cmp.Diff(step.want, k.writes); diff != "" {
			t.Errorf("raise %q: -want +got:\n%s", step.raised, diff)
		}
		k.writes = nil
		k.apply(targets, "")
		if targets.Raise(only(step.raised)) || len(k.writes) > 0 || !k.IsUnchanged(targets, make([]byte, 0, 512)) {
			t.Errorf("raise %q again is a change, writes %q", step.raised, k.writes)
		}
		if got := texts(k.recordOf(a, record.KindContainer).Settings.Lines()...); len(got) != 1 || got[0] != "8:0 wbps=5" {
			t.Errorf("raise %q: record %q", step.raised, got)
		}
	}
}

// TestRaiseOfFormerPlan verifies that a later plan without the burst, and another process, write the limit below it.
func TestRaiseOfFormerPlan(t *testing.T) {
	for name, next := range map[string]func(w *Written) *Targets{
		"an edit":       func(w *Written) *Targets { return NewTargets(planOf(a, b), w) },
		"a new process": func(*Written) *Targets { return NewTargets(withBursts(), &Written{}) },
	} {
		k, w := newKernel(t, pod, a, b), &Written{}
		targets := NewTargets(withBursts(), w)
		targets.Raise(only(a))
		if k.apply(targets, ""); k.ioMax(a) != "8:0 wbps=9" || k.ioMax(pod) != "8:0 wbps=14" {
			t.Fatalf("%s: io.max %q, pod %q", name, k.ioMax(a), k.ioMax(pod))
		}
		if k.apply(next(w), ""); k.ioMax(a) != "8:0 wbps=5" {
			t.Errorf("%s: io.max %q", name, k.ioMax(a))
		}
	}
}

// TestLowerFails verifies that a limit that could not be lowered does not count as in force.
func TestLowerFails(t *testing.T) {
	k := newKernel(t, pod, a, b)
	targets := NewTargets(withBursts(), &Written{})
	targets.Raise(only(a))
	k.apply(targets, "")
	targets.Raise(only(""))
	k.fails[a+"/io.max 8:0 wbps=5"] = syscall.EIO
	k.apply(targets, "")
	if k.IsUnchanged(targets, make([]byte, 0, 512)) {
		t.Error("a limit that could not be lowered is in force")
	}
	k.fails = nil
	if k.apply(targets, ""); k.ioMax(a) != "8:0 wbps=5" {
		t.Errorf("io.max %q", k.ioMax(a))
	}
}
