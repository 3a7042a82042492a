package node

import (
	"context"
	"fmt"
	"slices"

	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
	"github.com/nri-blkio/nri-blkio/plugin/node/layers"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// decidePod decides those containers of a pod whose disks are known, and that are not decided by the policy and the request that count.
// Only the budget of the namespace can have no room: a container that it was not asked about gets the room that is left then.
// An error means that ctx ended before.
func (n *Node) decidePod(ctx context.Context, pod podIdentity) (decided bool, _ error) {
	over, isMoved := map[containerRef]*annotation.Error{}, false // late containers, with the reasons
	defer func() {
		if isMoved {
			n.noteNamespace(pod)
		}
	}()
	var by *policy.Pod // what the budget of over was asked by
	for ctx.Err() == nil {
		v, pol := n.viewPod(pod), n.policy.Load()
		of := v.request.Under(pol)
		if of != by { // there may be another budget, or none
			clear(over)
		}
		by = of
		before := slices.DeleteFunc(slices.Clone(v.containers), func(c snapshot) bool {
			return !c.isDecidable() || !c.disks.Covers(of.Targets()) || c.isDecided(pol)
		})
		if len(before) == 0 {
			return decided, nil
		}
		some := copies(before)
		for _, c := range some {
			if over[c.ref] != nil {
				c.vetting = late
			} else if c.isLate() {
				c.vetting = unvetted // there may be room now
			}
		}
		p := v.propose(v.request, of, some, n.controls.Missing())
		n.readGranted(some[0])
		exceeding, err := n.commit(ctx, &p, over)
		if err != nil {
			continue
		}
		count := len(some) // that count: those before a late one
		for i := range exceeding {
			if c := exceeding[i].c; exceeding[i].rejects {
				over[c.ref], count = exceeding[i].excess, slices.IndexFunc(some, func(o *snapshot) bool { return o.ref == c.ref })
			} else {
				_ = n.exceeded(c, exceeding[i].excess) // the policy lets it run
			}
		}
		for i := range count {
			isMoved = n.noteRule(&before[i], some[i]) || isMoved
		}
		if decided = decided || count > 0; count == len(some) {
			return decided, nil
		}
	}
	return decided, fmt.Errorf("decide the limits of the pod: %w", context.Cause(ctx))
}

// unresolved returns the containers of a group whose disks have to be searched for, or that have to be decided. hung has the
// containers for which that has been under way for too long.
func (n *Node) unresolved(of groupIdentity, pol *policy.Policy, now *layers.Locations) (out, hung []identity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, c := range of.in(s).all() {
		switch {
		case c.isResolved(pol, now):
		case !c.token.IsHeld():
			out = append(out, c.identity)
		case c.hangs():
			hung = append(hung, c.identity)
		}
	}
	return out, hung
}

// isPlanned reports whether nothing was left to do for a group under this policy, and nothing has changed since.
func (g *group) isPlanned(pol *policy.Policy, now *layers.Locations) bool {
	return g.plan != nil && g.plan.policy == pol && g.plan.layers == now
}

// isResolved reports whether the disks of all containers of the group are found and all are decided, as far as that is possible.
// A search that is under way counts as not done, however long it takes.
func (g *group) isResolved(pol *policy.Policy, now *layers.Locations) bool {
	for _, c := range g.all() {
		if !c.isResolved(pol, now) {
			return false
		}
	}
	return true
}

func (c *container) isResolved(pol *policy.Policy, now *layers.Locations) bool {
	return c.isDecided(pol) && c.isFound(soughtBy(c.decision.policy), now)
}

// resolveAll brings the decisions for a group up to date: it finds disks, decides, and tries edits. Running containers cannot be
// rejected any more, so limits that cannot be enforced are logged and recorded.
func (n *Node) resolveAll(ctx context.Context, g groupIdentity) (errs []error) {
	if err := n.recall(g); err != nil {
		return []error{err} // the annotations are not known yet
	}
	errs = n.decideGroup(ctx, g, false)
	for _, e := range n.edits(g) {
		accepted, err := n.tryEdit(ctx, &e)
		if err != nil {
			errs = append(errs, fmt.Errorf("decide an edit: %w", err))
		}
		if accepted {
			errs = append(errs, n.decideGroup(ctx, g, true)...)
		}
	}
	return errs
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

// exceeded returns the error that refuses a container, if the budget has no room for it and the policy rejects that.
func (n *Node) exceeded(c *snapshot, excess *annotation.Error) error {
	if excess == nil {
		return nil
	}
	if !c.decision.policy.Refuses(excess) {
		c.logger(n.log).WithError(excess).Warn("Container exceeds the budget of its namespace")
		return nil
	}
	n.metrics.OverBudget.Add(1)
	return excess
}

// decideGroup finds the disks of the containers of a group, and decides its pods, as far as either is due. After an edit, it also
// finds the undeclared disks of all its containers: a "*" may apply to them now.
func (n *Node) decideGroup(ctx context.Context, g groupIdentity, isEdited bool) (errs []error) {
	undeclared := n.undeclared(newSharedReads(&n.environment))
	for again := true; again; {
		unresolved, hung := n.unresolved(g, n.policy.Load(), n.layers.Current())
		errs = nil
		for _, c := range hung {
			errs = append(errs, fmt.Errorf("limit container %s: %w", c.name, cause.ErrNoAnswer))
		}
		var pods []podIdentity
		for _, c := range unresolved {
			if err := n.find(ctx, c); err != nil {
				errs = append(errs, fmt.Errorf("limit container %s: %w", c.name, err))
			}
			if !slices.Contains(pods, c.pod) {
				pods = append(pods, c.pod)
			}
		}
		for _, pod := range pods {
			if _, err := n.decidePod(ctx, pod); err != nil {
				errs = append(errs, err)
			}
		}
		// This comes before any write. After a restart of the plugin the limits are in force, and a plan without the undeclared
		// disks would lift them until the next pass.
		again = false
		if isEdited {
			unresolved, isEdited = nil, false
			for _, c := range n.snapshotsOf(g) {
				unresolved = append(unresolved, c.identity)
			}
		}
		for _, c := range unresolved {
			again = undeclared.compareUse(ctx, c.ref) || again
		}
	}
	return errs
}

// snapshotsOf returns the containers of a group.
func (n *Node) snapshotsOf(of groupIdentity) (out []snapshot) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, c := range of.in(s).all() {
		out = append(out, c.snapshot)
	}
	return out
}

// noteRule logs that a running container has other limits because its pod follows changed labels of the namespace. It reports whether
// these were edited: labels that were unknown were not, and a new policy selects by other labels. A bystander had no policy.
func (n *Node) noteRule(before, now *snapshot) (isEdited bool) {
	former, by := before.decision.request, before.decision.policy
	if former == nil || former.NamespaceLabels.Equal(now.decision.request.NamespaceLabels) || !now.mayRun() || now.decision.hasValuesOf(before.decision) {
		return false
	}
	now.logger(n.log).WithField("limits", describe(now.decision.desired)).Info("A running container follows changed labels of its namespace")
	return former.NamespaceLabels != nil && (by == nil || by.Of() == now.decision.policy.Of())
}

// noteNamespace notes that a pod follows changed labels of its namespace, with the rule that is in force now.
func (n *Node) noteNamespace(of podIdentity) {
	rule := "no rule"
	if name := of.request.now.Load().Under(n.policy.Load()).Rule(); name != "" {
		rule = "rule " + quote.Name(name, quote.Most)
	}
	n.noteApplied(&of, "edited labels of the namespace apply, by which "+rule+" is in force")
}
