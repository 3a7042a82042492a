package node

import (
	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/budget"
)

// This file derives from the state what one pod is granted of a budget, and what the others are.

// namespace has the pods of a namespace that are part of the state.
type namespace struct {
	pods map[string]*pod      // by sandbox ID
	sums *budget.Sums[*group] // nil until its budget is first asked, and without a budget
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

// recount has the budgets of a group's namespaces add it up again. Each change of what share depends on has to call it.
func (s *state) recount(g *group) {
	for _, pod := range g.pods {
		if ns := s.namespaces[pod.namespace]; ns != nil {
			ns.sums.Changed(g)
		}
	}
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
func (c *snapshot) addTo(to *budget.Share, b *policy.NamespaceBudget, g *group) {
	if c.isDecidedFor(b) {
		to.AddContainer(&c.decision.desired, b)
		return
	}
	own, total := c.knownLimits(g)
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
