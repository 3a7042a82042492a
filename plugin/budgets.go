package plugin

import (
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// maxBudgetSums bounds the rows of a report. A tenant decides on how many disks it has volumes.
const maxBudgetSums = 500

// budgetsOf returns the report about budgets, those of weights last, nil without any.
func budgetsOf(uses []node.BudgetUse, weights []health.BudgetSum) *health.Budgets {
	if len(uses)+len(weights) == 0 {
		return nil
	}
	out := &health.Budgets{}
	for i := range uses {
		u := &uses[i]
		if len(out.Sums) == maxBudgetSums {
			break
		}
		out.Sums = append(out.Sums, health.BudgetSum{
			Namespace: u.Namespace, Disk: u.Disk.Name, Dev: u.Disk.Dev.String(), Key: u.Key.String(),
			Granted: annotation.FormatAmount(u.Key, u.Granted), Budget: annotation.FormatAmount(u.Key, u.Budget),
			Pods: u.Pods, Over: u.IsOver(), Undecided: u.Undecided,
		})
	}
	out.Sums = append(out.Sums, weights[:min(len(weights), maxBudgetSums-len(out.Sums))]...)
	out.LeftOut = len(uses) + len(weights) - len(out.Sums)
	return out
}
