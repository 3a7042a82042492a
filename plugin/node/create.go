package node

import (
	"context"
	"errors"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
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
	c.former.read = true // no earlier process knew it
	for {
		v, pol := n.viewPod(pod), n.policy.Load()
		of := v.request.under(pol)
		if err := n.finder().find(ctx, soughtBy(of), n.layers.current.Load(), &c); err != nil {
			return nil, err
		}
		fresh := []snapshot{c}
		fresh[0].disks.Facts.Stage = policy.Created
		p := v.propose(v.request, of, fresh, n.hasNoWeights(of))
		spec, err := n.admit(ctx, p, ctr, splitsLines)
		if !errors.Is(err, errStale) {
			return spec, err
		}
	}
}

// admit makes the new container of a proposal part of its pod, and returns the limits of its spec.
func (n *Node) admit(ctx context.Context, p *proposal, ctr *Container, splitsLines bool) (spec policy.Settings, _ error) {
	c := &p.containers[0]
	c.disks.Facts.Stage = policy.Running
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
	n.readFormer(c)
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

// commitNew makes the new container of a proposal part of its pod, unless it is refused, or the budget of its namespace has no room
// and the policy rejects that: between the question and the registration no other container may take the room. If the runtime does
// not wait any more, it may have given up the container; then StartContainer makes it part of the pod.
func (n *Node) commitNew(ctx context.Context, p *proposal, isRefused bool) (excess *annotation.Error, _ error) {
	s := n.state.Lock()
	defer n.state.Unlock()
	c := &p.containers[0]
	switch given := ctx.Err(); {
	case given != nil && isRefused:
		return nil, nil
	case given != nil:
		return nil, given
	case s.pods[c.pod.id] != c.pod.in(s):
		return nil, errRemoved
	case !p.view.isCurrent(s):
		return nil, errStale
	case isRefused:
		s.rememberRejected(c)
		return nil, nil
	}
	if old := c.pod.in(s).containers[c.id]; old != nil {
		s.handle(old, lifecycle.RemoveContainer) // its creation failed elsewhere, and is repeated
	}
	if excess = s.excess([]*snapshot{c}, nil); excess != nil && p.policy.Refuses(excess) {
		s.rememberRejected(c)
		return excess, nil
	}
	// Disks that could not be read are found later, and asked about then.
	c.vetted = c.disks.IsResolved()
	s.handle(s.add(c), lifecycle.CreateContainer)
	c.pod.in(s).total = c.decision.total
	s.remember(c)
	s.changed(c.pod.group.in(s))
	return excess, nil
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

// rememberRejected remembers the facts of a container that does not become part of its pod.
func (s *state) rememberRejected(c *snapshot) {
	c.arrival = s.nextArrival()
	p := c.pod.in(s)
	// What an accepted one before it has brought stays a limit of the pod.
	if before, known := p.known[c.name]; known && before.facts.Stage != policy.Rejected {
		before.arrival = c.arrival
		p.known[c.name] = before
		s.recount(p.group.in(s))
		return
	}
	c.disks.Facts.Stage = policy.Rejected
	if c.disks.HasTooManyMounts() { // those that fit would take the room of the other containers
		c.disks.Facts.Mounts, c.disks.Size = nil, 0
	}
	s.remember(c)
	if p.edit.next != nil { // the request that counts rejects the container as well
		s.markDirty(p.group.in(s))
	}
}
