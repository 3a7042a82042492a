package node

import (
	"cmp"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/budget"
)

// A budget is the most that the pods of a namespace may be granted together on a physical disk. What a pod is granted is derived from
// the state (share) and stored nowhere: a container that ends, is removed or is created again cannot leave a wrong sum
// behind. What all pods of a namespace are granted is kept up to date (policy/budget).

// knownLimits returns the limits that a container of the state is known to have, and those of its pod as a whole.
func (n *Node) knownLimits(c *snapshot) (own, total policy.Settings) {
	s := n.state.Lock()
	defer n.state.Unlock()
	return c.knownLimits(c.pod.group.in(s), c.pod.in(s))
}

func (c *snapshot) knownLimits(g *group, p *pod) (own, total policy.Settings) {
	if c.decision.policy != nil {
		return c.decision.desired.Settings, p.total
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
		for pod, c := range g.all() {
			if pod.namespace == namespace && c.isUnread(b) && g.counts(pod, c) {
				out = append(out, c.snapshot)
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
	c.setRecalled(known.recalled)
	c.redecide(func(d *decision) { d.desired.Lowest = lowest })
	s.recount(c.pod.group.in(s))
}

// excess returns an error if the budget has no room for some containers of one pod, beside the rest of their group. They are taken not
// to be counted yet, and are added one after another. Each takes the place of those in its pod that have its name. total are the limits
// of the pod as a whole with them, and grows is that of budget.Claim.
func (s *state) excess(g *group, of []*snapshot, total policy.Settings, grows func(blkio.Address) bool) *annotation.Error {
	if len(of) == 0 || of[0].decision.policy.Budget() == nil {
		return nil
	}
	own, others := s.tallyFor(g, of)
	for _, c := range of {
		claim := budget.Claim{Pod: c.decision.policy, Desired: &c.decision.desired, Total: total, Own: own, Others: others, Grows: grows}
		if err := claim.Check(); err != nil {
			return err
		}
		own.AddContainer(&c.decision.desired, c.decision.policy.Budget())
	}
	return nil
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

// sumsOf returns what the pods of a namespace are granted of its budget together. It adds up what has changed, except for one group,
// which may be about to change back.
func (s *state) sumsOf(name string, b *policy.NamespaceBudget, except *group) *budget.Sums[*group] {
	ns := s.namespaces[name]
	if ns == nil {
		ns = &namespace{} // its last pod has left
	}
	var isNew bool
	if ns.sums, isNew = budget.SumsFor(b, ns.sums); isNew {
		for _, pod := range ns.pods {
			ns.sums.Changed(pod.group.in(s))
		}
	}
	ns.sums.Update(except, func(g *group, b *policy.NamespaceBudget) (budget.Share, bool) { return g.share(name, b, none) })
	return ns.sums
}

// tallyFor returns what is granted of a budget where some containers of one pod use it, without these: to the pod, and to the other
// pods. g is their group, or what it is assumed to be.
func (s *state) tallyFor(g *group, of []*snapshot) (own *budget.Share, others func(blkio.Address) budget.Granted) {
	b, namespace, now := of[0].decision.policy.Budget(), of[0].pod.namespace, of[0].pod.group.in(s)
	isOne := func(name string) bool { return name == of[0].name }
	if len(of) > 1 {
		names := make(map[string]bool, len(of))
		for _, c := range of {
			names[c.name] = true
		}
		isOne = func(name string) bool { return names[name] }
	}
	share, _ := g.share(namespace, b, isOne)
	sums := s.sumsOf(namespace, b, now)
	return &share, func(at blkio.Address) budget.Granted { return sums.Without(now, at) }
}

// addTo adds a container. A policy with this budget may not have decided it yet, so that it is unknown which
// disks it uses without a limit. Then the limits that it is known to have count, and those of its pod as a whole.
func (c *snapshot) addTo(to *budget.Share, b *policy.NamespaceBudget, g *group, p *pod) {
	if c.isDecidedFor(b) {
		to.AddContainer(&c.decision.desired, b)
		return
	}
	own, total := c.knownLimits(g, p)
	to.AddUndecided(&c.decision.desired, own, total, b)
}

// isDecidedFor reports whether a policy with a budget like this one has decided the container.
func (c *snapshot) isDecidedFor(b *policy.NamespaceBudget) bool {
	return c.decision.policy != nil && c.decision.policy.Budget().Covers(b)
}

// isUnread reports whether what a container is granted of a budget depends on facts that were not read yet, see readGranted.
func (c *snapshot) isUnread(b *policy.NamespaceBudget) bool {
	return c.cgroup != "" && !c.isDecidedFor(b) && c.decision.desired.Lowest == nil
}

// none is no name of a container.
func none(string) bool { return false }

// isLast reports whether no later sandbox is in the group.
func (p *pod) isLast(g *group) bool {
	return g.pods[len(g.pods)-1].arrival <= p.arrival
}

// share returns what the containers of a group that count are granted of the budget of a namespace, without those of some names, and
// whether some of that was not read yet. Two sandboxes of a pod are one pod. Limits that ended containers of an earlier sandbox have
// brought are not limits of the pod any more: its annotations may be others since.
func (g *group) share(namespace string, b *policy.NamespaceBudget, except func(name string) bool) (out budget.Share, isUnread bool) {
	var room [2]policy.Settings
	totals := room[:0] // of each sandbox
	for _, pod := range g.pods {
		if pod.namespace != namespace {
			continue
		}
		isLast, isBound, isDecided := pod.isLast(g), false, false
		for _, c := range pod.containers {
			counts := g.counts(pod, c)
			if counts && !except(c.name) {
				c.addTo(&out, b, g, pod)
				isUnread = isUnread || c.isUnread(b)
			}
			if !counts && !isLast {
				continue
			}
			isBound, isDecided = true, isDecided || c.decision.policy != nil
		}
		switch {
		case isDecided:
			totals = append(totals, pod.total)
		case isBound:
			totals = append(totals, g.recorded.limits)
		}
	}
	out.BindWhole(totals, g.recorded.granted.Settings, b)
	return out, isUnread
}

// counts reports whether a container of a pod counts: it has not ended, and no newer one of its name has come. The kubelet
// creates a container again once the former one has ended. The plugin may learn of that end later, and never if the
// runtime has failed the creation.
func (g *group) counts(of *pod, c *container) bool {
	switch p := c.life.Phase(); {
	case p != lifecycle.Created && !p.MayRun(), of.known[c.name].arrival > c.arrival:
		return false
	case len(g.pods) == 1: // mostly it is so
		return true
	}
	for _, pod := range g.pods {
		if pod.known[c.name].arrival > c.arrival {
			return false
		}
	}
	return true
}
