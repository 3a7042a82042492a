package node

import (
	"context"
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// The budget of a namespace is asked when a container is created. The creation of a late container was not checked: no plugin was
// connected then and it had not started when one was, or an internal failure hid its disks. Its first decision is checked instead. Without room it is rejected at its
// start. If it runs already, or the runtime does not reject it, it gets the room that is left, and the budget is asked again with
// each retry.

// needsVetting reports whether the budget was not asked yet for a container that runs or starts, or had no room for it.
func (c *snapshot) needsVetting() bool {
	return !c.vetted && c.mayRun() && c.life.Phase() != lifecycle.Refused
}

// isLate reports whether the budget had no room for a container that runs or starts. decideAgain tries again as if it had.
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

// vet checks a container of the state against the budget of its namespace.
func (s *state) vet(c *container, fresh *snapshot) (excess *annotation.Error) {
	if !c.needsVetting() || fresh.isLate() {
		return nil
	}
	excess = s.excess([]*snapshot{fresh}, nil)
	c.vetted = excess == nil || !plan.Refuses(fresh.decision.policy, excess)
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

// recallLate notes that a container was not vetted by an earlier process, before its first decision.
func (n *Node) recallLate(pol *policy.Policy, c *snapshot) {
	if c.decision.policy != nil || !c.vetted || pol.BudgetFor(c.pod.namespace) == nil {
		return
	}
	r, err := record.Read(n.cgroups.Cgroup(c.cgroup), record.KindContainer)
	if err == nil && r != nil && r.Unvetted {
		c.vetted = false
		n.pods.forgetVetted(c.ref)
	}
}

func (t *podTable) forgetVetted(c containerRef) {
	s := t.state.Lock()
	defer t.state.Unlock()
	c.In(s).vetted = false
}

// hold decides a container for which the budget has no room. It does not raise the limit of its pod.
func (r *resolver) hold(ctx context.Context, current *policy.Policy, by *request, now *layerLocations, c *snapshot, excess *annotation.Error) error {
	c.disks.Facts.Stage = policy.Late
	if err := r.resolve(ctx, current, by, now, c); err != nil {
		return err
	}
	c.decision.err = plan.First(c.decision.policy, c.decision.err, excess)
	return nil
}

// refusalAtStart returns the error that refuses a container that starts.
func (n *Node) refusalAtStart(c *snapshot) error {
	err := n.refusal(c)
	if err != nil && c.isLate() {
		n.metrics.overBudget.Add(1)
	}
	return err
}

// warnNotEnforced logs why limits of a running container are not enforced, unless that is as before.
func (n *Node) warnNotEnforced(before, now *snapshot) {
	err := now.decision.err
	if err == nil || !now.mayRun() || before.decision.err != nil && annotation.WithoutAmounts(before.decision.err.Error()) == annotation.WithoutAmounts(err.Error()) {
		return
	}
	now.logger(n.log).WithError(err).Warn("Some limits of a running container are not enforced")
}
