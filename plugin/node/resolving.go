package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
)

// settle does what is left to do for a container: to look into what the
// runtime reported it, or to decide by the policy that is in force now.
func (n *Node) resolve(ctx context.Context, of identity) error {
	select {
	case of.token <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for another resolution of the container: %w", context.Cause(ctx))
	}
	pol, decided := n.policy.Load(), true
	defer func() {
		n.pods.endResolution(of)
		if decided && n.policy.Load() != pol {
			n.pods.markDirty(of.pod.group) // the pass after the reload may have left the container to this look
		}
	}()
	old, layers := n.pods.beginResolution(of), n.layers.current.Load()
	if old.isResolved(pol, layers) {
		return nil
	}
	fresh := old
	err := n.resolver.resolve(ctx, pol, layers, &fresh)
	decided = err == nil // a failure is tried again after a pause
	n.pods.resolved(ctx, &fresh, err)
	return cmp.Or(err, fresh.resolution.notCompared)
}

// resolved notes what settle has found and decided for a container. err is why it could not.
func (t *podTable) resolved(ctx context.Context, fresh *snapshot, err error) {
	s := t.state.Lock()
	defer t.state.Unlock()
	c := fresh.in(s)
	defer s.changed(c.pod.group.in(s))
	if err != nil {
		if c.decision.policy == nil {
			c.decision.err = err // for the record
		}
		return
	}
	// Only these: an event may have changed others.
	c.disks, c.layer, c.decision = fresh.disks, fresh.layer, fresh.decision
	if c.resolution.again {
		s.resolveAgain(c)
	}
	if c.resolution.again || ctx.Err() != nil { // too late for the caller to write it
		s.markDirty(c.pod.group.in(s))
	}
	s.remember(&c.snapshot)
}

// isResolved says that there is nothing left to look into, and to decide by this policy.
func (c *snapshot) isResolved(pol *policy.Policy, layers *placed) bool {
	return c.decision.policy.Of() == pol && c.disks.IsResolved() && !layers.moved(c) && !c.isToCompare() && slices.Equal(c.disks.Facts.Reached, c.use.seen.Reached)
}

// unresolved returns the containers of a group that settle has work for, and apart from
// them those that a look at has taken too long already.
func (t *podTable) unresolved(g groupIdentity, pol *policy.Policy, layers *placed) (out, hung []identity) {
	s := t.state.Lock()
	defer t.state.Unlock()
	for _, pod := range g.in(s).pods {
		for _, c := range pod.containers {
			switch {
			case c.isResolved(pol, layers):
			case len(c.token) == 0:
				out = append(out, c.identity)
			case !c.resolution.began.IsZero() && time.Since(c.resolution.began) > passDeadline:
				hung = append(hung, c.identity)
			}
		}
	}
	return out, hung
}

// resolveAll is for containers that run already. They cannot be refused any
// more, so what they cannot get is logged and recorded. It goes on after ctx
// ends with those that need no look at the node.
func (n *Node) resolveAll(ctx context.Context, g groupIdentity) []error {
	var errs []error
	stacks, undeclared := inventory.NewStacks(n.storage), n.undeclared()
	unresolved, hung := n.pods.unresolved(g, n.policy.Load(), n.layers.current.Load())
	for _, c := range hung {
		errs = append(errs, fmt.Errorf("limit container %s: one of its disks does not answer", c.name))
	}
	for _, c := range unresolved {
		before := n.pods.snapshot(c.ref)
		err := n.resolve(ctx, c)
		if err == nil && undeclared.reach(ctx, stacks, c.ref) {
			// Before anything is written: after a restart of ours the limits are there,
			// and would be lifted until the next pass.
			err = n.resolve(ctx, c)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("limit container %s: %w", c.name, err))
			continue
		}
		// Another look may find the same.
		if now := n.pods.snapshot(c.ref); now.decision.err != nil && now.mayRun() && (before.decision.err == nil || before.decision.err.Error() != now.decision.err.Error()) {
			now.logger(n.log).WithError(now.decision.err).Warn("Some limits of a running container are not enforced")
		}
	}
	return errs
}

// neighbours returns the facts of a pod's containers, and whether another pod is in its
// cgroup.
func (t *podTable) neighbours(pod podIdentity) (seen []policy.Container, shared bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	return pod.in(s).seen(), pod.group.in(s).shared()
}
