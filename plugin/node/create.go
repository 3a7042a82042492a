package node

import (
	"context"
	"errors"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/policy"
)

// create decides a new container's limits and returns those of its OCI spec. It writes nothing, because there
// is no cgroup yet (docs/reference/quirks.md). It returns at the latest when ctx ends. An error of the policy
// fails the creation, with the text that the tenant sees. A container for which no call is left is decided when
// it starts.
func (n *Node) create(ctx context.Context, sb *Sandbox, ctr *Container, splitsLines bool) (policy.Settings, error) {
	pod, err := n.lookupGuarded(sb)
	if pod.isNone() {
		return nil, err
	}
	answer := make(chan policy.Settings, 1) // the call may go on after this returns
	err = n.inFlight.calls.Within(ctx, pod.group.key, func(ctx context.Context) error {
		spec, err := n.decideNew(ctx, pod, ctr, splitsLines)
		answer <- spec
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-answer, nil
}

// decideNew decides the limits of a new container, and returns those of its spec. It decides again after each edit of the
// pod that counts meanwhile, at most until ctx ends.
func (n *Node) decideNew(ctx context.Context, pod podIdentity, ctr *Container, splitsLines bool) (policy.Settings, error) {
	if err := n.applier().restoreEdits(pod.group); err != nil {
		return nil, err
	}
	for {
		spec, err := n.decideOnce(ctx, pod, ctr, splitsLines)
		if !errors.Is(err, errEdited) {
			return spec, err
		}
	}
}

// errEdited means that an edit has replaced the request of a pod while a container of it was decided by the former one.
// The edit was granted without the container, so the budget of the namespace may have no room for both.
var errEdited = errors.New("the annotations, labels or claims of the pod were changed meanwhile")

// decideOnce decides a new container by the request of its pod, and makes the container part of the pod.
func (n *Node) decideOnce(ctx context.Context, pod podIdentity, ctr *Container, splitsLines bool) (policy.Settings, error) {
	c, err := n.decideBy(ctx, pod, ctr, pod.request.now.Load())
	switch {
	case err != nil:
		return nil, err
	case n.fallBack(ctx, &c, ctr, nil):
		return nil, errEdited
	}
	n.warnClaims(&snapshot{}, &c)
	if err := n.refusal(&c); err != nil {
		n.pods.rememberRejected(ctx, &c)
		return nil, err
	}
	if c.decision.policy.Mode() == policy.ModeObserve {
		c.logger(n.log).WithField("limits", describe(c.decision.desired)).Info("Observe mode: limits decided, not written")
		return nil, n.admit(ctx, &c, ctr)
	}
	spec := plan.InSpec(c.decision.desired.Settings, splitsLines).Where(func(s policy.Setting) bool {
		// NRI fails the creation if two plugins set one file. These limits are written when the container starts.
		// memory.high may be set: the kubelet sets it, and is not a plugin.
		return s.Key == blkio.MemoryHigh || ctr.Unified[s.File()] == ""
	})
	c.spec.Own = plan.Kept(spec)
	high, _ := c.decision.desired.Settings.Get(blkio.Address{Key: blkio.MemoryHigh})
	c.disks.Facts.Guarded = uint64(high.Amount)
	return spec, n.admit(ctx, &c, ctr)
}

// decideBy decides a new container by a request.
func (n *Node) decideBy(ctx context.Context, pod podIdentity, ctr *Container, by *request) (snapshot, error) {
	c := newContainer(pod, ctr, n.pods.mountRoom(pod, ctr.Name))
	c.resolution.fresh = true
	err := n.resolver.resolve(ctx, n.policy.Load(), by, n.layers.current.Load(), &c)
	c.resolution.fresh, c.disks.Facts.Stage = false, policy.Running
	return c, err
}
