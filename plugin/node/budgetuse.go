package node

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// BudgetUse is the sum of the amounts that the pods of a namespace are granted of one key on one disk.
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
	out := n.pods.budgets(n.policy.Load())
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
	over := map[string]bool{}
	for _, u := range n.pods.budgets(n.policy.Load()) {
		if u.IsOver() {
			over[u.Namespace] = true
		}
	}
	return len(over)
}

func (t *podTable) budgets(pol *policy.Policy) (out []BudgetUse) {
	s := t.state.Lock()
	defer t.state.Unlock()
	for namespace := range s.namespaces {
		b := pol.BudgetFor(namespace)
		if b == nil {
			continue
		}
		sums, names := newTally(b), s.diskNames(namespace)
		sums.all = true
		s.addNamespace(sums, namespace, nil)
		for at, p := range sums.parts {
			out = append(out, BudgetUse{
				Namespace: namespace, Disk: blkio.Disk{Dev: at.Dev, Name: names[at.Dev]}, Key: at.Key,
				Granted: p.Others, Budget: b.Limits[at.Key], Pods: p.Pods, Undecided: sums.undecided,
			})
		}
	}
	return out
}

// diskNames returns the names of the disks of a namespace's containers.
func (s *state) diskNames(namespace string) map[blkio.Dev]string {
	names := map[blkio.Dev]string{}
	for _, pod := range s.namespaces[namespace] {
		for _, c := range pod.containers {
			maps.Copy(names, c.decision.desired.Disks)
			for i := range c.decision.desired.Uses {
				d := &c.decision.desired.Uses[i].Disk
				names[d.Dev] = d.Name
			}
		}
	}
	return names
}
