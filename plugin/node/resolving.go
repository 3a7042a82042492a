package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// resolve finds the disks of a container's mounts and devices, and decides its limits by the policy in force.
// It does only what earlier resolutions have left open.
func (n *Node) resolve(ctx context.Context, of identity) error {
	select {
	case of.token <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for another resolution of the container: %w", context.Cause(ctx))
	}
	pol, by, decided := n.policy.Load(), of.pod.request.now.Load(), true
	defer func() {
		n.pods.endResolution(of)
		if decided && (n.policy.Load() != pol || !by.isOf(&of.pod)) {
			n.pods.markDirty(of.pod.group) // the pass after the change may have found the container being resolved
		}
	}()
	old, layers := n.pods.beginResolution(of), n.layers.current.Load()
	if old.isResolved(pol, layers) {
		return nil
	}
	fresh, err := n.decideAgain(ctx, pol, by, layers, old)
	decided = err == nil // a failure is retried after a pause
	if err == nil {
		n.warnClaims(&old, &fresh)
		n.noteRule(&old, &fresh)
	}
	return cmp.Or(err, fresh.resolution.notCompared)
}

// decideAgain finds the disks of a container and decides its limits, and notes both. It notes less if the budget of the namespace
// has to be asked, and has no room.
func (n *Node) decideAgain(ctx context.Context, pol *policy.Policy, by *request, layers *layerLocations, old snapshot) (fresh snapshot, err error) {
	n.recallLate(pol, &old)
	if fresh = old; old.isLate() {
		fresh.disks.Facts.Stage = policy.Running // there may be room now
	}
	if err = n.resolver.resolve(ctx, pol, by, layers, &fresh); err != nil {
		_, _ = n.pods.resolved(ctx, &fresh, nil, err)
		return fresh, err
	}
	unlisted := n.unvetted(&fresh)
	excess, isLate := n.pods.resolved(ctx, &fresh, unlisted, nil)
	if isLate {
		fresh.decision = old.decision
		err = n.resolver.hold(ctx, pol, by, layers, &fresh, excess)
		_, _ = n.pods.resolved(ctx, &fresh, unlisted, err) // the budget was asked
		return fresh, err
	}
	_ = n.exceeded(&fresh, excess)
	return fresh, nil
}

// resolved notes the disks and the decision that resolve has found for a container, or its error. It returns the error of the
// budget if that has to be asked and has no room. Then it notes nothing if that rejects the container, and returns true.
func (t *podTable) resolved(ctx context.Context, fresh *snapshot, unlisted []unlistedPod, err error) (excess *annotation.Error, rejects bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	c := fresh.in(s)
	if err != nil {
		s.changed(c.pod.group.in(s))
		if c.decision.policy == nil {
			c.decision.err = err // for the record
		}
		return nil, false
	}
	if excess = s.vet(c, fresh, unlisted); excess != nil && !c.vetted {
		return excess, true
	}
	if fresh.isLate() {
		s.fit(fresh, unlisted)
	}
	defer s.changed(c.pod.group.in(s))
	// Only these fields are copied, because an event may have changed others.
	c.disks, c.layer, c.decision = fresh.disks, fresh.layer, fresh.decision
	// A container that has come since knows of more containers.
	if p := c.pod.in(s); !c.unanswered && p.newest() == c.resolution.newest {
		p.total = c.decision.total
	}
	c.resolution.number++
	if c.resolution.again {
		s.resolveAgain(c)
	}
	if c.resolution.again || ctx.Err() != nil { // too late for the caller to write the limits
		s.markDirty(c.pod.group.in(s))
	}
	s.remember(&c.snapshot)
	return excess, false
}

// isResolved reports whether all disks of the container are known and its limits are decided by this policy and the
// request of its pod, with room in the budget of the namespace.
func (c *snapshot) isResolved(pol *policy.Policy, layers *layerLocations) bool {
	return c.decidedBy(pol) && !c.needsVetting() && c.disks.IsResolved() && !layers.moved(c) && !c.needsComparison() && slices.Equal(c.disks.Facts.Undeclared, c.use.seen.Undeclared)
}

// unresolved returns the containers of a group that need resolve. hung has the containers whose resolution has
// been under way for too long.
func (t *podTable) unresolved(g groupIdentity, pol *policy.Policy, layers *layerLocations) (out, hung []identity) {
	s := t.state.Lock()
	defer t.state.Unlock()
	return g.in(s).unresolved(pol, layers)
}

func (g *group) unresolved(pol *policy.Policy, layers *layerLocations) (out, hung []identity) {
	for _, pod := range g.pods {
		for _, c := range pod.containers {
			switch {
			case c.isResolved(pol, layers):
			case len(c.token) == 0:
				out = append(out, c.identity)
			case c.hangs():
				hung = append(hung, c.identity)
			}
		}
	}
	return out, hung
}

// hangs reports whether a resolution of the container has been under way for too long.
func (c *snapshot) hangs() bool {
	return len(c.token) > 0 && !c.resolution.began.IsZero() && time.Since(c.resolution.began) > passDeadline
}

func (t *podTable) hangs(of identity) bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	return of.in(s).hangs()
}

// resolveAll resolves the running containers of a group. They cannot be rejected any more, so limits that
// cannot be enforced are logged and recorded. After ctx ends, it still resolves those containers that need no
// access to the node.
func (n *Node) resolveAll(ctx context.Context, g groupIdentity) []error {
	if err := n.applier().restoreEdits(g); err != nil {
		return []error{err} // the annotations are not known yet
	}
	undeclared := n.undeclared(newSharedReads(&n.environment))
	edited, followed, errs := n.tryEdits(ctx, g)
	for _, c := range edited {
		if undeclared.compareUse(ctx, c.ref) { // before any write, as below
			errs = append(errs, n.resolve(ctx, c))
		}
	}
	unresolved, hung := n.pods.unresolved(g, n.policy.Load(), n.layers.current.Load())
	for _, c := range hung {
		errs = append(errs, fmt.Errorf("limit container %s: %w", c.name, errNoAnswer))
	}
	var moved []podIdentity
	for _, c := range unresolved {
		before := n.pods.snapshot(c.ref)
		err := n.resolve(ctx, c)
		if err == nil && undeclared.compareUse(ctx, c.ref) {
			// This comes before any write. After a restart of the plugin the limits are in force, and a plan
			// without the undeclared disks would lift them until the next pass.
			err = n.resolve(ctx, c)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("limit container %s: %w", c.name, err))
			continue
		}
		now := n.pods.snapshot(c.ref)
		if n.pods.isMoved(&before, &now) && !slices.Contains(moved, c.pod) {
			moved = append(moved, c.pod)
		}
		n.warnNotEnforced(&before, &now) // a repeated resolution may find the same error
	}
	for i := range followed {
		n.noteCounts(&followed[i].editOf, followed[i].parts, followed[i].of)
	}
	n.noteNamespaces(moved)
	return errs
}

// around returns the facts about a pod on which the decision for one of its containers depends.
func (t *podTable) around(pod podIdentity) surroundings {
	s := t.state.Lock()
	defer t.state.Unlock()
	p := pod.in(s)
	return surroundings{seen: p.seen(), former: p.former, isShared: pod.group.in(s).shared()}
}
