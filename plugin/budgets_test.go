package plugin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestBudget verifies that a pod without annotations concerns the plugin if its namespace has a budget, and
// that the report has the granted sum.
func TestBudget(t *testing.T) {
	limited, plain := sandbox(map[string]string{limitsKey + "containers": "* wbps=60Mi"}), sandbox(nil)
	plain.Id, plain.Linux.CgroupParent = "sb2", "/kubepods.slice/kubepods-pod2.slice"
	pol, err := policy.ParseFile([]byte("apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n" +
		"budgets: [{namespaces: [" + plain.GetNamespace() + "], limits: ['* wbps=100Mi']}]"))
	if err != nil {
		t.Fatal(err)
	}
	p := newPlugin(t, func(c *Config) { c.Policy = pol })
	s := &session{p: p, log: p.log, deadline: time.Minute}
	if _, _, err := s.CreateContainer(t.Context(), limited, ctr("a")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.CreateContainer(t.Context(), plain, ctr("b")); err == nil || !strings.Contains(err.Error(), "wbps of * needs a limit: disk vda has none") {
		t.Errorf("a container without a limit: %v", err)
	}
	if got := p.Health().Budgets; got == nil || len(got.Sums) != 1 || got.Sums[0].Granted != "60Mi" || got.Sums[0].Disk != "vda" {
		t.Errorf("report %+v", got)
	}
}

func TestBudgetsOf(t *testing.T) {
	if got := budgetsOf(nil, nil); got != nil {
		t.Errorf("without budgets: %+v", got)
	}
	vda := blkio.Disk{Dev: blkio.Dev{Major: 254}, Name: "vda"}
	weight := health.BudgetSum{Namespace: "a", Key: "weight", Factor: 0.5}
	got := budgetsOf([]node.BudgetUse{
		{Namespace: "b", Disk: vda, Key: blkio.Wbps, Granted: blkio.Max, Budget: 200 << 20, Pods: 2, Undecided: 1},
		{Namespace: "a", Disk: vda, Key: blkio.Riops, Granted: 500, Budget: 5000, Pods: 1},
	}, []health.BudgetSum{weight})
	want := &health.Budgets{Sums: []health.BudgetSum{
		{Namespace: "b", Disk: "vda", Dev: "254:0", Key: "wbps", Granted: "max", Budget: "200Mi", Pods: 2, Over: true, Undecided: 1},
		{Namespace: "a", Disk: "vda", Dev: "254:0", Key: "riops", Granted: "500", Budget: "5k", Pods: 1},
		weight,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var many []node.BudgetUse
	for i := range maxBudgetSums + 7 {
		many = append(many, node.BudgetUse{Namespace: fmt.Sprint(i)})
	}
	if got := budgetsOf(many, []health.BudgetSum{weight}); len(got.Sums) != maxBudgetSums || got.LeftOut != 8 {
		t.Errorf("%d rows, %d left out", len(got.Sums), got.LeftOut)
	}
	if got := budgetsOf(nil, []health.BudgetSum{weight}); len(got.Sums) != 1 || got.LeftOut != 0 {
		t.Errorf("only weights: %d rows, %d left out", len(got.Sums), got.LeftOut)
	}
}
