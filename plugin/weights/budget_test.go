package weights

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestBudget verifies that a budget of weights enables io.cost without any weight, scales the weights of pods, and is reported with
// the weights that count. It is in force from the first pass of a new process that knows the pods; until then weights stay.
func TestBudget(t *testing.T) {
	n := newNode(t)
	n.policy.Budgets = []policy.NamespaceBudget{{Namespaces: []string{"prod"}, Weight: 60}}
	n.demand.Budgets = map[string]policy.WeightBudget{pod: {Namespace: "prod", Weight: 60}}
	n.pass()
	n.pass()
	n.want("io.cost.qos", "254:0 enable=1 ctrl=auto\n254:16 enable=1 ctrl=auto")
	n.want(slice+"/io.weight", "default 100\n254:0 60\n254:16 60")
	n.want(pod+"/io.weight", "default 100\n254:0 60\n254:16 60")
	n.demand.Weighted = weighted
	r := n.pass()
	want := []health.BudgetSum{
		{Namespace: "prod", Disk: "vdb", Dev: "254:16", Key: "weight", Granted: "300", Budget: "60", Pods: 1, Factor: 0.2},
	}
	if diff := cmp.Diff(want, r.Budgets); diff != "" {
		t.Errorf("budgets: -want +got:\n%s", diff)
	}
	if s := r.Shares[0]; s.Weight != 300 || s.Scaled != 60 || s.Share != 1 {
		t.Errorf("share %+v", s)
	}
	before := n.read(pod + "/io.weight")
	n.demand = Demand{Unlisted: true, Unknown: "the runtime has not listed what runs"}
	n.start(n.keeper.cfg.Cgroups)
	n.pass()
	n.want(pod+"/io.weight", before)
	n.demand = Demand{Complete: true, Weighted: weighted}
	n.demand.Budgets = map[string]policy.WeightBudget{pod: {Namespace: "prod", Weight: 600}} // a new policy
	n.pass()
	n.want(pod+"/io.weight", before)
	if r = n.pass(); r.Budgets[0].Factor != 1 || r.Shares[0].Scaled != 0 {
		t.Errorf("below the budget: %+v, %+v", r.Budgets, r.Shares)
	}
	n.want(pod+"/io.weight", "default 100\n254:0 300\n254:16 300")
	n.policy = policy.Default()
	n.demand = Demand{Complete: true}
	n.now = n.now.Add(lingerFor)
	n.pass()
	n.want(pod+"/io.weight", "default 100")
}

// TestBudgetOfPods verifies the share that a pod with a weight as a whole has beside a pod of another tenant.
func TestBudgetOfPods(t *testing.T) {
	n := newNode(t)
	n.demand.Weighted = append(weighted, Weighted{Namespace: "prod", Pod: "db-0", Cgroup: pod, Disks: []blkio.Disk{vdb}, Weights: blkio.Weights{Default: 900}})
	n.demand.Budgets = map[string]policy.WeightBudget{pod: {Namespace: "prod", Weight: 225}}
	n.pass()
	r := n.pass()
	n.want(pod+"/io.weight", "default 100\n254:16 225")
	for _, s := range r.Shares {
		if got, want := s.Scaled, float64(s.Weight)/4; got != want {
			t.Errorf("%q has %g, want %g", s.Container, got, want)
		}
	}
}
