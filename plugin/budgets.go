package plugin

import (
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// maxBudgetSums bounds the rows of a report. A tenant decides on how many disks it has volumes.
const maxBudgetSums = 500

// budgetsOf returns the report about budgets, nil without any.
func budgetsOf(uses []node.BudgetUse) *health.Budgets {
	if len(uses) == 0 {
		return nil
	}
	out := &health.Budgets{}
	for i := range uses {
		u := &uses[i]
		if len(out.Sums) == maxBudgetSums {
			out.LeftOut = len(uses) - i
			break
		}
		out.Sums = append(out.Sums, health.BudgetSum{
			Namespace: u.Namespace, Disk: u.Disk.Name, Dev: u.Disk.Dev.String(), Key: u.Key.String(),
			Granted: annotation.FormatAmount(u.Key, u.Granted), Budget: annotation.FormatAmount(u.Key, u.Budget),
			Pods: u.Pods, Over: u.IsOver(), Undecided: u.Undecided,
		})
	}
	return out
}
