package node

import (
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// The budget of a namespace is asked when a container is created. It is asked later about a late container: no plugin was connected
// at its creation, some of its disks could not be found, or it has other disks since. Without room such a container is rejected at
// its start. If it runs already, or the runtime does not reject it, it gets the room that is left, and the budget is asked again
// with each retry.

// needsVetting reports whether the budget was not asked yet about all disks of a live container, or had no room for it. Before its
// start as well, and after a refused one: what a decision grants without that question would be no growth once it runs.
func (c *snapshot) needsVetting() bool {
	return !c.vetted && c.isLive()
}

// isLate reports whether the budget had no room for a live container.
func (c *snapshot) isLate() bool { return c.disks.Facts.Stage == policy.Late }

// hasLate reports whether the budget had no room for a live container of a group.
func (g *group) hasLate() bool {
	for _, pod := range g.pods {
		for _, c := range pod.containers {
			if c.needsVetting() && c.isLate() {
				return true
			}
		}
	}
	return false
}

// vet asks the budget of its namespace about a container of the state, if it was not asked before. The container is vetted if there
// is room, or if the policy lets containers run without.
func (s *state) vet(c *container, fresh *snapshot) (excess *annotation.Error) {
	if !c.needsVetting() {
		return nil
	}
	excess = s.excess([]*snapshot{fresh}, s.growth(c, fresh))
	c.vetted = excess == nil || !fresh.decision.policy.Refuses(excess)
	return excess
}

// growth reports where a new decision for a container of the state grants its pod more of the budget. It is nil if the container is
// decided for the first time: all of it is more. What a container has already stays, as after any change by an administrator.
func (s *state) growth(c *container, fresh *snapshot) func(blkio.Address) bool {
	b := fresh.decision.policy.Budget()
	if b == nil || c.decision.policy.Budget() == nil {
		return nil
	}
	p, g := c.pod.in(s), c.pod.group.in(s)
	former, total, before := c.decision, p.total, s.grants(g, p.namespace, b)
	c.decision, p.total = fresh.decision, fresh.decision.total
	after := s.grants(g, p.namespace, b)
	c.decision, p.total = former, total
	return func(at blkio.Address) bool { return after[at] > before[at] }
}

// fit lowers the limits of a late container to the room in the budget of its namespace, where its pod is granted more; everywhere if
// grows is nil.
func (s *state) fit(c *snapshot, grows func(blkio.Address) bool) {
	d := &c.decision.desired
	claim := c.claim(s.tallyFor([]*snapshot{c}))
	claim.Grows = grows
	limits := claim.Fit()
	names := maps.Clone(d.Disks)
	for _, x := range limits {
		if names == nil {
			names = map[blkio.Dev]string{}
		}
		names[x.Dev] = d.DiskName(x.Dev)
	}
	d.Settings, d.Disks, d.Warnings = d.Settings.Lowest(limits), names, slices.Concat(d.Warnings, []string{lateWarning})
}

// lateWarning is the warning about a late container.
const lateWarning = "the budget of the namespace has no room for all that the container asks for: it gets what is left"

// refusalAtStart returns the error that refuses a container that starts.
func (n *Node) refusalAtStart(c *snapshot) error {
	err := c.refusal()
	if err != nil && c.isLate() {
		n.metrics.overBudget.Add(1)
	}
	return n.rejected(c, err)
}
