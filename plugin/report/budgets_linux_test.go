package report

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/health"
)

// TestWriteBudgets verifies that a sum above the budget, and pods that are not decided yet, are visible.
func TestWriteBudgets(t *testing.T) {
	sum := health.BudgetSum{Namespace: "prod", Disk: "sda", Key: "wbps", Granted: "10Mi", Budget: "20Mi", Pods: 2}
	over := sum
	over.Granted, over.Over, over.Undecided = "max", true, 1
	undecided := sum
	undecided.Undecided = 2
	weight := health.BudgetSum{Namespace: "prod", Disk: "sda", Key: "weight", Granted: "100", Budget: "300", Pods: 1, Factor: 1}
	scaled := health.BudgetSum{Namespace: "test", Disk: "sda", Key: "weight", Granted: "1200", Budget: "100", Pods: 12, Factor: 1. / 12}
	for _, tt := range []struct {
		name    string
		budgets *health.Budgets
		want    string
	}{
		{name: "no report"},
		{name: "no budget", budgets: &health.Budgets{}},
		{
			name: "all states", budgets: &health.Budgets{Sums: []health.BudgetSum{over, undecided, sum}},
			want: `
Budgets:
NAMESPACE  DISK  KEY   GRANTED  BUDGET  PODS  STATE
prod       sda   wbps  max      20Mi    2     over the budget, without 1 pod not decided yet
prod       sda   wbps  10Mi     20Mi    2     ok, without 2 pods not decided yet
prod       sda   wbps  10Mi     20Mi    2     ok
`,
		},
		{
			name: "weights", budgets: &health.Budgets{Sums: []health.BudgetSum{sum, weight, scaled}},
			want: `
Budgets:
NAMESPACE  DISK  KEY     GRANTED  BUDGET  PODS  STATE
prod       sda   wbps    10Mi     20Mi    2     ok
prod       sda   weight  100      300     1     ok
test       sda   weight  1200     100     12    scaled to 8.3%
`,
		},
		{
			name: "many", budgets: &health.Budgets{Sums: []health.BudgetSum{sum}, LeftOut: 3},
			want: `
Budgets:
NAMESPACE  DISK  KEY   GRANTED  BUDGET  PODS  STATE
prod       sda   wbps  10Mi     20Mi    2     ok
note: 3 budgets are left out, because the report is bounded
`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			writeBudgets(&out, tt.budgets)
			if d := cmp.Diff(tt.want, out.String()); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// TestWriteGuarantees verifies that a guarantee that is not kept has its reason.
func TestWriteGuarantees(t *testing.T) {
	kept := health.BudgetSum{Namespace: "gold", Disk: "sda", Key: "guarantee", Granted: "30%", Budget: "30%", Pods: 1, Factor: 3}
	unkept := health.BudgetSum{Namespace: "gold", Disk: "sdb", Key: "guarantee", Granted: "0%", Budget: "30%", Pods: 1, Reason: "weights: off", Chosen: true}
	class := health.BudgetSum{Class: "gold", Disk: "sda", Key: "guarantee", Granted: "40%", Budget: "30%", Pods: 2, Factor: 1}
	want := `
Budgets:
NAMESPACE   DISK  KEY        GRANTED  BUDGET  PODS  STATE
gold        sdb   guarantee  0%       30%     1     not kept: weights: off
gold        sda   guarantee  30%      30%     1     scaled to 300.0%
class/gold  sda   guarantee  40%      30%     2     ok
`
	var out bytes.Buffer
	writeBudgets(&out, &health.Budgets{Sums: []health.BudgetSum{unkept, kept, class}})
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
