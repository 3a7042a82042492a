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
	var spec policy.Settings
	err = n.inFlight.calls.Within(ctx, pod.group.key, func(ctx context.Context) (err error) {
		spec, err = n.decideNew(ctx, pod, ctr, splitsLines)
		return err
	})
	if err != nil { // the call may go on, and write spec
		return nil, err
	}
	return spec, nil
}

// decideNew decides the limits of a new container, and returns those of its spec. It decides again after each change of the pod
// meanwhile, at most until ctx ends.
func (n *Node) decideNew(ctx context.Context, pod podIdentity, ctr *Container, splitsLines bool) (policy.Settings, error) {
	if err := n.recall(pod.group); err != nil {
		return nil, err
	}
	c := newContainer(pod, ctr, n.mountRoom(pod, ctr.Name))
	c.recalled = noRecord // no earlier process knew it
	for {
		v, pol := n.viewPod(pod), n.policy.Load()
		of := v.request.Under(pol)
		if err := n.finder().find(ctx, soughtBy(of), n.layers.current.Load(), &c); err != nil {
			return nil, err
		}
		p := v.propose(v.request, of, []snapshot{c}, n.controls.Missing())
		spec, err := n.admit(ctx, p, ctr, splitsLines)
		if !errors.Is(err, errStale) {
			return spec, err
		}
	}
}

// admit makes the new container of a proposal part of its pod, and returns the limits of its spec.
func (n *Node) admit(ctx context.Context, p *proposal, ctr *Container, splitsLines bool) (spec policy.Settings, _ error) {
	c := &p.containers[0]
	refusal := c.refusal()
	if p.policy.Mode() != policy.ModeObserve {
		spec = plan.InSpec(c.decision.desired.Settings, splitsLines).Where(func(s policy.Setting) bool {
			// NRI fails the creation if two plugins set one file. These limits are written when the container starts.
			// memory.high may be set: the kubelet sets it, and is not a plugin.
			return s.Key == blkio.MemoryHigh || ctr.Unified[s.File()] == ""
		})
		c.spec.Own = plan.Kept(spec)
		high, _ := c.decision.desired.Settings.Get(blkio.Address{Key: blkio.MemoryHigh})
		c.disks.Facts.Guarded = uint64(high.Amount)
	}
	n.readGranted(c)
	excess, err := n.commitNew(ctx, p, refusal != nil)
	if err != nil {
		return nil, err
	}
	if refusal != nil {
		return nil, n.rejected(c, refusal)
	}
	n.tell(c.pod.group) // it may have ended before the next turn
	if p.policy.Mode() == policy.ModeObserve {
		c.logger(n.log).WithField("limits", describe(c.decision.desired)).Info("Observe mode: limits decided, not written")
	}
	return spec, n.exceeded(c, excess)
}

// refusal returns the error that rejects a container, nil if it may start although part of its request is not granted.
func (c *snapshot) refusal() error {
	if err := c.decision.err; c.decision.policy.Refuses(err) {
		return err
	}
	return nil
}

// rejected logs the error that refuses a container, nil if none does, and returns it.
func (n *Node) rejected(c *snapshot, refusal error) error {
	if refusal != nil {
		c.logger(n.log).WithError(refusal).Info("Rejected a container")
	}
	return refusal
}

// refusalAtStart returns the error that refuses a container that starts.
func (n *Node) refusalAtStart(c *snapshot) error {
	err := c.refusal()
	if err != nil && c.isLate() {
		n.metrics.overBudget.Add(1)
	}
	return n.rejected(c, err)
}
