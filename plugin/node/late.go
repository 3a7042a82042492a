package node

import (
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// The budget of a namespace is asked when a container is created. It is asked later about a late container: no plugin was connected
// at its creation, some of its disks could not be found, or it has other disks since. Without room such a container is rejected at
// its start. If it runs already, or the runtime does not reject it, it gets the room that is left, and the budget is asked again
// with each retry.

// needsVetting reports whether the budget was not asked yet about all disks of a live container, or had no room for it. Before its
// start as well, and after a refused one: what a decision grants without that question would be no growth once it runs.
func (c *snapshot) needsVetting() bool {
	return c.vetting != vetted && c.isLive()
}

// isLate reports whether the budget had no room for a live container.
func (c *snapshot) isLate() bool { return c.vetting == late }

// hasLate reports whether the budget had no room for a live container of a group.
func (g *group) hasLate() bool {
	for _, pod := range g.pods {
		for _, c := range pod.containers {
			if c.isLive() && c.isLate() {
				return true
			}
		}
	}
	return false
}

// growth reports where a new decision for a container of the state grants its pod more of the budget. It is nil if the container is
// decided for the first time: all of it is more. What a container has already stays, as after any change by an administrator.
func (s *state) growth(c *container, fresh *snapshot) func(blkio.Address) bool {
	b, g := fresh.decision.policy.Budget(), c.pod.group.in(s)
	if b == nil || c.decision.policy.Budget() == nil {
		return nil
	}
	before, after := g.grants(c.pod.namespace, b), s.assuming(g, []*snapshot{fresh}).grants(c.pod.namespace, b)
	return func(at blkio.Address) bool { return after[at] > before[at] }
}

// toRoom lowers the limits of a late container to the room that the budget of its namespace has beside the rest of its group, where its
// pod is granted more; everywhere if grows is nil.
func (s *state) toRoom(g *group, c *snapshot, grows func(blkio.Address) bool) {
	d := &c.decision.desired
	claim := c.claim(s.tallyFor(g, []*snapshot{c}))
	claim.Grows = grows
	limits := claim.Room()
	names := maps.Clone(d.Disks)
	for _, x := range limits {
		if names == nil {
			names = map[blkio.Dev]string{}
		}
		names[x.Dev] = d.DiskName(x.Dev)
	}
	c.redecide(func(to *decision) {
		to.desired.Settings, to.desired.Disks, to.desired.Warnings = d.Settings.Lowest(limits), names, slices.Concat(d.Warnings, []string{lateWarning})
	})
}

// lateWarning is the warning about a late container.
const lateWarning = "the budget of the namespace has no room for all that the container asks for: it gets what is left"
