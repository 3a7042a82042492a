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

// needsVetting reports whether the budget was not asked yet for a container that runs or starts, or had no room for it.
func (c *snapshot) needsVetting() bool {
	return !c.vetted && c.mayRun() && !c.isRefused()
}

// isLate reports whether the budget had no room for a container that runs or starts.
func (c *snapshot) isLate() bool { return c.disks.Facts.Stage == policy.Late }

// hasLate reports whether the budget had no room for a running container of a group.
func (t *podTable) hasLate(of groupIdentity) bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	for _, pod := range of.in(s).pods {
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
	excess = s.excess([]*snapshot{fresh}, nil)
	c.vetted = excess == nil || !fresh.decision.policy.Refuses(excess)
	return excess
}

// fit lowers the limits of a late container to the room in the budget of its namespace.
func (s *state) fit(c *snapshot) {
	d := &c.decision.desired
	claim := c.claim(s.tallyFor([]*snapshot{c}))
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
	err := n.logRefusal(c, c.refusal())
	if err != nil && c.isLate() {
		n.metrics.overBudget.Add(1)
	}
	return err
}

// warnNotEnforced logs why limits of a running container are not enforced, unless that is as before.
func (n *Node) warnNotEnforced(before, now *snapshot) {
	err := now.decision.err
	if now.decision.policy == nil || err == nil || !now.mayRun() || before.decision.err != nil && keyOf(before.decision.err) == keyOf(err) {
		return
	}
	now.logger(n.log).WithError(err).Warn("Some limits of a running container are not enforced")
}
