package node

import (
	"cmp"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/budget"
)

// A budget is the most that the pods of a namespace may be granted together on a physical disk. What a pod is granted is derived from
// the state (tally.go) and stored nowhere: a container that ends, is removed or is created again cannot leave a wrong sum
// behind. What all pods of a namespace are granted is kept up to date (policy/budget).

// exceeded returns the error that refuses a container, if the budget has no room for it and the policy rejects that.
func (n *Node) exceeded(c *snapshot, excess *annotation.Error) error {
	if excess == nil {
		return nil
	}
	if !c.decision.policy.Refuses(excess) {
		c.logger(n.log).WithError(excess).Warn("Container exceeds the budget of its namespace")
		return nil
	}
	n.metrics.overBudget.Add(1)
	return n.rejected(c, excess)
}

// readGranted reads what is granted to those containers of the namespace that are not decided yet: by the records of an earlier process,
// with the physical disks below. It does nothing without a budget.
func (n *Node) readGranted(c *snapshot) {
	b := c.decision.policy.Budget()
	if b == nil {
		return
	}
	for _, of := range n.unread(c.pod.namespace, b) {
		if n.recall(of.pod.group) == nil && n.recallContainer(&of) == nil {
			n.noteGranted(&of, n.lowest(n.knownLimits(&of)))
		}
	}
}

// knownLimits returns the limits that a container of the state is known to have, and those of its pod as a whole.
func (n *Node) knownLimits(c *snapshot) (own, total policy.Settings) {
	s := n.state.Lock()
	defer n.state.Unlock()
	return c.knownLimits(c.pod.group.in(s))
}

func (c *snapshot) knownLimits(g *group) (own, total policy.Settings) {
	if c.decision.policy != nil {
		return c.decision.desired.Settings, c.decision.total
	}
	if c.recalled != nil {
		own = c.recalled.limits
	}
	if len(own) == 0 {
		own = c.spec.Values()
	}
	return own, g.recorded.limits
}

// lowest returns the physical disks below those of settings, see policy.Container.Lowest.
func (n *Node) lowest(own, total policy.Settings) map[blkio.Dev][]blkio.Disk {
	var devs []blkio.Dev
	for _, s := range slices.Concat(own, total) {
		if s.Key.IsRate() {
			devs = append(devs, s.Dev)
		}
	}
	return inventory.Lowest(n.storage, devs)
}

// unread returns the containers of a namespace that count for its budget, and for which noteGranted was not called yet.
func (n *Node) unread(namespace string, b *policy.NamespaceBudget) (out []snapshot) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for g := range s.sumsOf(namespace, b, nil).Unread() {
		for _, pod := range g.pods {
			for _, c := range pod.containers {
				if pod.namespace == namespace && c.isUnread(b) && g.counts(pod, c) {
					out = append(out, c.snapshot)
				}
			}
		}
	}
	return out
}

// noteGranted notes what is known of the limits of a container, and the physical disks below them.
func (n *Node) noteGranted(known *snapshot, lowest map[blkio.Dev][]blkio.Disk) {
	s := n.state.Lock()
	defer n.state.Unlock()
	c := known.in(s)
	if c.decision.policy != known.decision.policy {
		return // decided meanwhile
	}
	if c.setRecalled(known.recalled); lowest == nil {
		lowest = map[blkio.Dev][]blkio.Disk{}
	}
	c.redecide(func(d *decision) { d.desired.Lowest = lowest })
	s.recount(c.pod.group.in(s))
}

// excess returns an error if the budget has no room for some containers of one pod, beside the rest of their group. They are taken not
// to be counted yet, and are added one after another. Each takes the place of those in its pod that have its name. grows is that of
// budget.Claim.
func (s *state) excess(g *group, of []*snapshot, grows func(blkio.Address) bool) *annotation.Error {
	if len(of) == 0 || of[0].decision.policy.Budget() == nil {
		return nil
	}
	own, others := s.tallyFor(g, of)
	for _, c := range of {
		claim := c.claim(own, others)
		claim.Grows = grows
		if err := claim.Check(); err != nil {
			return err
		}
		own.AddContainer(&c.decision.desired, c.decision.policy.Budget())
	}
	return nil
}

// claim returns the claim of a container to a budget of which its pod has own so far, and other pods the rest.
func (c *snapshot) claim(own *budget.Share, others func(blkio.Address) budget.Granted) budget.Claim {
	return budget.Claim{Pod: c.decision.policy, Desired: &c.decision.desired, Total: c.decision.total, Own: own, Others: others}
}

// grants returns what the pod of a group is granted of a budget on each physical disk. The budget may be nil.
func (g *group) grants(namespace string, b *policy.NamespaceBudget) map[blkio.Address]blkio.Amount {
	out := map[blkio.Address]blkio.Amount{}
	if b == nil {
		return out
	}
	share, _ := g.share(namespace, b, none)
	for _, p := range share.Portions() {
		out[p.Address] = p.Known
	}
	return out
}

// raises reports whether a container is granted more of a budget by a decision than by the former one.
func (d *decision) raises(b *policy.NamespaceBudget, former *decision) (more bool) {
	before := map[blkio.Address]blkio.Amount{}
	former.desired.Charges(b, func(at blkio.Address, amount blkio.Amount) { before[at] = amount })
	d.desired.Charges(b, func(at blkio.Address, amount blkio.Amount) { more = more || amount > before[at] })
	return more
}

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
	out := n.budgetUses()
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
	for _, u := range n.budgetUses() {
		if u.IsOver() {
			over[u.Namespace] = true
		}
	}
	return len(over)
}

// budgetUses returns what the pods of each namespace with a budget are granted, in any order.
func (n *Node) budgetUses() (out []BudgetUse) {
	pol := n.policy.Load()
	s := n.state.Lock()
	defer n.state.Unlock()
	for name, ns := range s.namespaces {
		b := pol.BudgetFor(name)
		if b == nil {
			ns.sums = nil
			continue
		}
		sums := s.sumsOf(name, b, nil)
		sums.Known(func(disk string, at blkio.Address, granted budget.Granted) {
			out = append(out, BudgetUse{
				Namespace: name, Disk: blkio.Disk{Dev: at.Dev, Name: disk}, Key: at.Key,
				Granted: granted.Amount, Budget: b.Limits[at.Key], Pods: granted.Pods, Undecided: sums.Undecided(),
			})
		})
	}
	return out
}
