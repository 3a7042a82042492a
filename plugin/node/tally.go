package node

import (
	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file derives from the state what one pod is granted of a budget, and what the others are.

// tally has what is granted of a budget to all but some containers of one pod.
type tally struct {
	own    policy.Share // of the pod, without these containers
	others func(at blkio.Address) policy.Granted
}

// tallyFor returns what is granted of a budget where some containers of one pod use it, without these. g is their group, or what it is
// assumed to be.
func (s *state) tallyFor(g *group, of []*snapshot) *tally {
	b, namespace, own := of[0].decision.policy.Budget(), of[0].pod.namespace, of[0].pod.group.in(s)
	isOne := func(name string) bool { return name == of[0].name }
	if len(of) > 1 {
		names := make(map[string]bool, len(of))
		for _, c := range of {
			names[c.name] = true
		}
		isOne = func(name string) bool { return names[name] }
	}
	share, _ := g.share(namespace, b, isOne)
	sums := s.sumsOf(namespace, b)
	sums.update(own)
	return &tally{own: share, others: func(at blkio.Address) policy.Granted {
		return sums.without(own, at)
	}}
}

// bounds has the limits of a pod as a whole.
type bounds struct {
	totals []policy.Settings // of each of its sandboxes
	kept   policy.Settings   // those that stay where totals have none
}

// at returns the limit at an address; blkio.Max for none. Of two sandboxes the higher one counts: which of them is in force
// depends on where a container runs.
func (p *bounds) at(at blkio.Address) (most blkio.Amount) {
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

// bind adds the limits to a share.
func (p *bounds) bind(to *policy.Share, b *policy.NamespaceBudget) {
	add := func(total policy.Settings) {
		for _, s := range total {
			if !b.Has(s.Key) {
				continue
			}
			if most := p.at(s.Address); most != blkio.Max {
				to.Bind(s.Address, most)
			}
		}
	}
	add(p.kept)
	for _, total := range p.totals {
		add(total)
	}
}

// addBound adds a container without a limit of its own on the disks that its pod as a whole has a limit for, and it has none for.
func addBound(to *policy.Share, b *policy.NamespaceBudget, own, total policy.Settings, names *policy.Desired) {
	for _, s := range total.Without(own) {
		if b.Has(s.Key) {
			to.Add(s.Address, blkio.Max, names)
		}
	}
}

// addSettings adds what a container was granted before. It returns false if nothing is known for some key of
// the budget: the container may have no limit.
func addSettings(to *policy.Share, b *policy.NamespaceBudget, own policy.Settings, names *policy.Desired) (isKnown bool) {
	var known blkio.Limits
	for _, s := range own {
		if b.Has(s.Key) {
			to.Add(s.Address, s.Amount, names)
			known[s.Key] = s.Amount
		}
	}
	for k, most := range b.Limits {
		if most != blkio.Unset && known[k] == blkio.Unset {
			return false
		}
	}
	return true
}

// addTo adds a container. A policy with this budget may not have decided it yet, so that it is unknown which
// disks it uses without a limit. Then the limits that it is known to have count, and those of its pod as a whole.
func (c *snapshot) addTo(to *policy.Share, b *policy.NamespaceBudget, g *group) {
	if c.isDecidedFor(b) {
		to.AddContainer(&c.decision.desired, b)
		return
	}
	own, total := c.knownLimits(g)
	to.AddStack(c.decision.desired.Lowest)
	to.Undecided = !addSettings(to, b, own, &c.decision.desired) || to.Undecided
	addBound(to, b, own, total, &c.decision.desired)
}

// isDecidedFor reports whether a policy with a budget like this one has decided the container.
func (c *snapshot) isDecidedFor(b *policy.NamespaceBudget) bool {
	return c.decision.policy != nil && covers(c.decision.policy.Budget(), b)
}

// isUnread reports whether what a container is granted of a budget depends on facts that were not read yet, see readGranted.
func (c *snapshot) isUnread(b *policy.NamespaceBudget) bool {
	return c.cgroup != "" && !c.isDecidedFor(b) && c.decision.desired.Lowest == nil
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

// none is no name of a container.
func none(string) bool { return false }

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

// share returns what the containers of a group that count are granted of the budget of a namespace, without those of some names, and
// whether some of that was not read yet. Two sandboxes of a pod are one pod. Limits that ended containers of an earlier sandbox have
// brought are not limits of the pod any more: its annotations may be others since.
func (g *group) share(namespace string, b *policy.NamespaceBudget, except func(name string) bool) (out policy.Share, isUnread bool) {
	var room [2]policy.Settings
	whole := bounds{totals: room[:0], kept: g.recorded.granted.Settings}
	for _, pod := range g.pods {
		if pod.namespace != namespace {
			continue
		}
		isLast, isBound, isDecided := pod.isLast(g), false, false
		for _, c := range pod.containers {
			counts := g.counts(pod, c)
			if counts && !except(c.name) {
				c.addTo(&out, b, g)
				isUnread = isUnread || c.isUnread(b)
			}
			if !counts && !isLast {
				continue
			}
			isBound, isDecided = true, isDecided || c.decision.policy != nil
		}
		switch {
		case isDecided:
			whole.totals = append(whole.totals, pod.total)
		case isBound:
			whole.totals = append(whole.totals, g.recorded.limits)
		}
	}
	whole.bind(&out, b)
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
