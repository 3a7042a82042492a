package node

import (
	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
)

// tally adds up what the pods of a namespace are granted of a budget: container by container, and then for each pod
// the smaller of that sum and of the limit of the pod as a whole.
type tally struct {
	budget *policy.NamespaceBudget
	parts  map[blkio.Address]*part
	// all is true if each address is added up, instead of those in parts alone.
	all bool
	pod pending
	// undecided counts pods with a container of which nothing is known yet.
	undecided int
}

// part is the amount that is granted at one address.
type part struct {
	at blkio.Address
	policy.Granted
	pod int          // the number of the pod that the fields below are of
	sum blkio.Amount // of the containers of the pod that is being added
}

// pending is the pod that is being added.
type pending struct {
	number    int
	touched   []*part           // those of this pod
	totals    []policy.Settings // limits of the pod as a whole, of each of its sandboxes
	kept      policy.Settings   // limits of the pod as a whole that stay where totals have none
	undecided bool              // nothing is known of one of its containers
}

// bound returns the limit of the pod as a whole at an address; blkio.Max for none. Of two sandboxes the higher one counts: which
// of them is in force depends on where a container runs.
func (p *pending) bound(at blkio.Address) (most blkio.Amount) {
	without := blkio.Max
	if s, found := p.kept.Get(at); found {
		without = s.Amount
	}
	for _, total := range p.totals {
		if s, found := total.Get(at); found {
			most = max(most, s.Amount)
		} else {
			most = max(most, without)
		}
	}
	if len(p.totals) == 0 {
		return without
	}
	return most
}

func newTally(b *policy.NamespaceBudget) *tally {
	return &tally{budget: b, parts: map[blkio.Address]*part{}}
}

// granted returns what is granted at an address.
func (t *tally) granted(at blkio.Address) policy.Granted {
	if p := t.parts[at]; p != nil {
		return p.Granted
	}
	return policy.Granted{}
}

// part returns the part of an address for the pod that is being added; nil if the address is not added up.
func (t *tally) part(at blkio.Address) *part {
	p := t.parts[at]
	switch {
	case p != nil:
	case !t.all:
		return nil
	default:
		p = &part{at: at}
		t.parts[at] = p
	}
	if p.pod != t.pod.number {
		p.pod, p.sum = t.pod.number, 0
		t.pod.touched = append(t.pod.touched, p)
	}
	return p
}

// begin begins to add a pod.
func (t *tally) begin() {
	t.pod = pending{number: t.pod.number + 1, touched: t.pod.touched[:0], totals: t.pod.totals[:0]}
}

// add adds what a container of the pod counts for at an address.
func (t *tally) add(at blkio.Address, amount blkio.Amount) {
	if p := t.part(at); p != nil {
		p.sum = policy.Plus(p.sum, amount)
	}
}

// bind adds the limits of the pod as a whole of one sandbox.
func (t *tally) bind(total policy.Settings) { t.pod.totals = append(t.pod.totals, total) }

// end ends a pod. isOwn is true for the pod of the container that the sums are for.
func (t *tally) end(isOwn bool) {
	if t.pod.undecided {
		t.undecided++
		if !t.all { // a report does not take all of the budget for granted there
			for at := range t.parts {
				t.part(at).sum = blkio.Max
			}
		}
	}
	for _, p := range t.pod.touched {
		bound := t.pod.bound(p.at)
		granted := min(p.sum, bound)
		if isOwn {
			p.Own, p.Bound = p.sum, bound
		} else {
			p.Others = policy.Plus(p.Others, granted)
		}
		if granted != 0 {
			p.Pods++
		}
		p.Undecided = p.Undecided || granted == blkio.Max && t.pod.undecided
	}
}

// grow adds a container to the own pod of the sums.
func (t *tally) grow(c *snapshot) {
	c.decision.desired.Charges(t.budget, func(at blkio.Address, amount blkio.Amount) {
		p := t.parts[at]
		if p.Own == 0 && amount != 0 {
			p.Pods++
		}
		p.Own = policy.Plus(p.Own, amount)
	})
}

// addBound adds a container without a limit of its own on the disks that its pod as a whole has a limit for, and it has none for.
func (t *tally) addBound(own, total policy.Settings) {
	for _, s := range total.Without(own) {
		if t.budget.Has(s.Key) {
			t.add(s.Address, blkio.Max)
		}
	}
}

// addSettings adds what a container was granted before. It returns false if nothing is known for some key of
// the budget: the container may have no limit.
func (t *tally) addSettings(own policy.Settings) (isKnown bool) {
	var known blkio.Limits
	for _, s := range own {
		if t.budget.Has(s.Key) {
			t.add(s.Address, s.Amount)
			known[s.Key] = s.Amount
		}
	}
	for k, most := range t.budget.Limits {
		if most != blkio.Unset && known[k] == blkio.Unset {
			return false
		}
	}
	return true
}

// addContainer adds a container. A policy with this budget may not have decided it yet, so that it is unknown which
// disks it uses without a limit. Then the limits that it is known to have count, and those of its pod as a whole.
func (t *tally) addContainer(c *snapshot) {
	pol := c.decision.policy
	if pol != nil && covers(pol.Budget(), t.budget) {
		c.decision.desired.Charges(t.budget, t.add)
		return
	}
	own, total := c.former.own, c.former.total
	switch {
	case pol != nil:
		own, total = c.decision.desired.Settings, c.decision.total
	case len(own) == 0:
		own = c.spec.Values()
	}
	t.pod.undecided = !t.addSettings(own) || t.pod.undecided
	t.addBound(own, total)
}

// covers reports whether a budget bounds each key that another one bounds.
func covers(b, other *policy.NamespaceBudget) bool {
	if b == other { // mostly it is so
		return true
	}
	for k := range blkio.NumLimits {
		if other.Has(k) && !b.Has(k) {
			return false
		}
	}
	return true
}

// addCharges begins to add up the addresses that a container charges, or at which it limits its pod as a whole.
func (t *tally) addCharges(c *snapshot) {
	c.decision.desired.Charges(t.budget, func(at blkio.Address, _ blkio.Amount) { t.parts[at] = &part{at: at} })
	for _, x := range c.decision.total {
		if t.budget.Has(x.Key) {
			t.parts[x.Address] = &part{at: x.Address}
		}
	}
}

// addNamespace adds the pods of a namespace, without those of one group.
func (s *state) addNamespace(t *tally, namespace string, except *group) {
	for _, pod := range s.namespaces[namespace] {
		if g := pod.group.in(s); g != except && pod.isFirst(g) {
			t.begin()
			g.addTo(t, namespace, nil)
			t.end(false)
		}
	}
	for _, b := range s.bystanders { // a new policy concerns them, and is about to make them known
		if b.sandbox.Namespace == namespace && len(b.containers) > 0 {
			t.begin()
			t.pod.undecided = true
			t.end(false)
		}
	}
}

// isFirst reports whether no earlier sandbox of its namespace is in the group: two sandboxes of a pod are one pod.
func (p *pod) isFirst(g *group) bool {
	if len(g.pods) == 1 { // mostly it is so
		return true
	}
	for _, other := range g.pods {
		if other.namespace == p.namespace && other.arrival < p.arrival {
			return false
		}
	}
	return true
}

// isLast reports whether no later sandbox is in the group.
func (p *pod) isLast(g *group) bool {
	if len(g.pods) == 1 { // mostly it is so
		return true
	}
	for _, other := range g.pods {
		if other.arrival > p.arrival {
			return false
		}
	}
	return true
}

// addTo adds the containers of a group that count, without those of some names, and the limits of the pod as a whole. Those that
// ended containers of an earlier sandbox have are not limits of the pod any more: its annotations may be others since.
func (g *group) addTo(t *tally, namespace string, except map[string]bool) {
	t.pod.kept = g.recorded.granted.Settings
	for _, pod := range g.pods {
		if pod.namespace != namespace {
			continue
		}
		isLast, isBound, isDecided := pod.isLast(g), false, false
		var former policy.Settings // of an earlier process
		for _, c := range pod.containers {
			counts := g.counts(pod, c)
			if !except[c.name] && counts {
				t.addContainer(&c.snapshot)
			}
			if !counts && !isLast {
				continue
			}
			isBound, isDecided = true, isDecided || c.decision.policy != nil
			if c.former.read {
				former = c.former.total
			}
		}
		switch {
		case isDecided:
			t.bind(pod.total)
		case isBound:
			t.bind(former)
		}
	}
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
