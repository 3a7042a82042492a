package node

import (
	"cmp"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// BudgetUse is the sum of the amounts that the pods of a namespace are granted of one key on one physical disk.
type BudgetUse struct {
	Namespace string
	Disk      blkio.Disk
	Key       blkio.Key
	Granted   blkio.Amount // blkio.Max if a pod uses the disk without a limit
	Budget    blkio.Amount
	Pods      int // that are granted something
	// Undecided counts the pods of the namespace of which it is not known yet what they are granted. They are not
	// in Granted.
	Undecided int
}

// IsOver reports whether more is granted than the budget: it was lowered, or containers were not refused.
func (u *BudgetUse) IsOver() bool { return u.Granted > u.Budget }

// Budgets returns what the pods of each namespace with a budget are granted, those first that are granted more than
// their budget.
func (n *Node) Budgets() []BudgetUse {
	out := n.budgetUses(n.policy.Load())
	slices.SortFunc(out, func(a, b BudgetUse) int {
		switch {
		case a.IsOver() == b.IsOver():
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), a.Disk.Dev.Compare(b.Disk.Dev), cmp.Compare(a.Key, b.Key))
		case a.IsOver():
			return -1
		}
		return 1
	})
	return out
}

// overBudget counts the namespaces that are granted more than their budget.
func (n *Node) overBudget() int {
	pol, over := n.policy.Load(), 0
	s := n.state.Lock()
	defer n.state.Unlock()
	for name, ns := range s.namespaces {
		isOver := false
		s.uses(name, ns, pol, func(u BudgetUse) { isOver = isOver || u.IsOver() })
		if isOver {
			over++
		}
	}
	return over
}

// budgetUses returns what the pods of each namespace with a budget are granted under a policy.
func (n *Node) budgetUses(pol *policy.Policy) (out []BudgetUse) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for name, ns := range s.namespaces {
		s.uses(name, ns, pol, func(u BudgetUse) { out = append(out, u) })
	}
	return out
}

// uses yields what the pods of a namespace are granted of its budget, in any order.
func (s *state) uses(name string, ns *namespace, pol *policy.Policy, yield func(BudgetUse)) {
	b := pol.BudgetFor(name)
	if b == nil {
		ns.sums = nil
		return
	}
	sums := s.sumsOf(name, b)
	sums.update(nil)
	sums.known(func(disk string, at blkio.Address, granted policy.Granted) {
		yield(BudgetUse{
			Namespace: name, Disk: blkio.Disk{Dev: at.Dev, Name: disk}, Key: at.Key,
			Granted: granted.Amount, Budget: b.Limits[at.Key], Pods: granted.Pods, Undecided: len(sums.undecided),
		})
	})
}
