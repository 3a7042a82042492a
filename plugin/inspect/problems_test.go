package inspect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestBrief verifies the line of status --brief, and the list of problems behind it.
func TestBrief(t *testing.T) {
	connected := []Part{{Part: health.Limits, State: health.Connected}}
	value := func(pod, container, state string) Value {
		return Value{Subject: Subject{Namespace: "prod", Pod: pod, Container: container}, Disk: "vdb", Key: "wbps", Asked: "1Mi", State: state}
	}
	backstop := value("a", "", ValueOK)
	backstop.Source.Kind = policy.FromBackstop
	failed := Value{Subject: Subject{Namespace: "prod", Pod: "c"}, State: ValueError}
	idle := &health.Weights{Shares: []health.Share{{Namespace: "prod", Pod: "w", Reason: "x"}, {Namespace: "prod", Pod: "v", Reason: "x", Chosen: true}}}
	guarantees := &health.Budgets{Sums: []health.BudgetSum{
		{Namespace: "gold", Disk: "vda"}, {Namespace: "gold", Disk: "vdb", Reason: "x"}, {Class: "fast", Disk: "vdc", Reason: "x", Chosen: true},
	}}
	for _, tt := range []struct {
		name   string
		status Status
		strict bool
		want   string
	}{
		{"nothing", Status{Parts: connected}, false, "ok: 0 limits in force on 0 pods"},
		{"in force", Status{Parts: connected, Values: []Value{value("a", "x", ValueOK), value("a", "y", ValueOK), backstop, value("b", "x", ValueOK)}}, false, "ok: 3 limits in force on 2 pods"},
		{"by choice", Status{Parts: connected, Values: []Value{value("a", "x", ValueOK), value("b", "x", ValueObserved), value("c", "x", ValueCleared)}}, false, "ok: 1 limit in force on 1 pod, 1 observed, 1 cleared"},
		{"by choice, strict", Status{Parts: connected, Values: []Value{value("b", "x", ValueObserved)}}, true, "1 problem: prod/b x: wbps=1Mi on vdb: observed"},
		{"no part", Status{}, true, "1 problem: the limits part is not connected"},
		{"a pod", Status{Parts: connected, Values: []Value{value("a", "", ValueMissing), failed}}, false, "2 problems: prod/a: wbps=1Mi on vdb: missing; prod/c: error"},
		{
			"many",
			Status{Parts: []Part{{Part: health.Writeback, PolicyRejected: "line 3"}}, Values: []Value{value("a", "x", ValueDrift)}, Reported: Reported{Weights: idle}},
			false,
			"4 problems: the limits part is not connected; part writeback has rejected the new policy; prod/a x: wbps=1Mi on vdb: drift; and 1 more",
		},
		{"guarantees", Status{Parts: connected, Reported: Reported{Budgets: guarantees}}, false, "1 problem: namespace gold: the guarantee is not kept on vdb"},
		{
			"guarantees, strict",
			Status{Parts: connected, Reported: Reported{Budgets: guarantees}},
			true,
			"2 problems: namespace gold: the guarantee is not kept on vdb; class fast: the guarantee is not kept on vdc",
		},
		{"weights", Status{Parts: connected, Reported: Reported{Weights: idle}}, true, "2 problems: prod/w: the weight has no effect; prod/v: the weight has no effect"},
	} {
		if got := tt.status.Brief(tt.strict); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if tt.status.HasFindings(tt.strict) != !strings.HasPrefix(tt.want, "ok: ") {
			t.Errorf("%s: findings are %v", tt.name, tt.status.Problems(tt.strict))
		}
	}
	s := Status{Values: []Value{value("b", "x", ValueOK), value("a", "x", ValueOK), value("b", "", ValueOK)}}
	if d := cmp.Diff([]string{"prod/a", "prod/b"}, s.Pods()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
