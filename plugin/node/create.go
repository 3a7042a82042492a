package node

import (
	"context"
	"errors"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// This file decides what a container gets when it is created, and which errors reject one that is created or starts.

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
	for {
		v, pol := n.viewPod(pod), n.policy.Load()
		of := v.request.Under(pol)
		c := newContainer(pod, ctr, n.mountRoom(pod, ctr.Name))
		c.recalled = noRecord // no earlier process knew it
		if err := n.finder().find(ctx, soughtBy(of), n.layers.Current(), &c); err != nil {
			return nil, err
		}
		v.propose(v.request, of, []*snapshot{&c}, n.controls.Missing())
		spec, err := n.admit(ctx, &v, &c, ctr, splitsLines)
		if !errors.Is(err, errStale) {
			return spec, err
		}
	}
}

// admit makes a new container part of its pod, and returns the limits of its spec. The container was decided by the view.
func (n *Node) admit(ctx context.Context, v *podView, c *snapshot, ctr *Container, splitsLines bool) (spec policy.Settings, _ error) {
	refusal, pol := c.refusal(), c.decision.policy
	if pol.Mode() != policy.ModeObserve {
		controls := plan.Controls{Missing: n.controls.Missing()}
		spec = plan.InSpec(c.decision.desired.Settings, splitsLines).Where(func(s policy.Setting) bool {
			// NRI fails the creation if two plugins set one file. These limits are written when the container starts.
			// memory.high may be set: the kubelet sets it, and is not a plugin.
			return s.Key == blkio.MemoryHigh || ctr.Unified[s.File()] == "" && controls.HasFile(s)
		})
		c.spec.Own = plan.Kept(spec)
		high, _ := c.decision.desired.Settings.Get(blkio.Address{Key: blkio.MemoryHigh})
		c.disks.Facts.Guarded = uint64(high.Amount)
	}
	n.readGranted(c)
	excess, err := n.commitNew(ctx, v, c, refusal != nil)
	if err != nil {
		return nil, err
	}
	if refusal != nil {
		return nil, n.rejected(c, refusal)
	}
	n.tell(c.pod.group) // it may have ended before the next turn
	if pol.Mode() == policy.ModeObserve {
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

// Create decides a new container's limits, and returns those that go into its OCI spec. It returns false if it
// could not decide them. An error rejects the container.
func (n *Node) Create(ctx context.Context, sb *Sandbox, ctr *Container, splitsLines bool) (spec policy.Settings, decided bool, err error) {
	spec, err = n.create(ctx, sb, ctr, splitsLines)
	if err != nil {
		return nil, false, n.verdict(err, sb, ctr)
	}
	return spec, true, nil
}

// Start writes the limits that the OCI spec could not carry. An error rejects the container.
func (n *Node) Start(ctx context.Context, sb *Sandbox, ctr *Container, canRefuse bool) error {
	return n.verdict(n.start(ctx, sb, ctr, canRefuse), sb, ctr)
}

// verdict decides by the cause of an error whether it fails the container. An annotation.Error was logged by
// its decision; verdict logs any other error.
func (n *Node) verdict(err error, sb *Sandbox, ctr *Container) error {
	if err == nil {
		return nil
	}
	if refusal, ok := errors.AsType[*annotation.Error](err); ok {
		n.metrics.refused[refusal.Kind()].Add(1)
		n.noteRefused(sb, ctr.Name, refusal)
		return refusal
	}
	log := n.log.WithError(err).WithFields(logrus.Fields{"pod": sb.Namespace + "/" + sb.Name, "container": ctr.Name})
	if refusal := n.Refusal(sb); refusal != nil {
		n.noteRefused(sb, ctr.Name, refusal)
		log.Error("Rejected a container because of an internal error")
		return refusal
	}
	log.Error("Container starts without all of its limits, retrying")
	return nil
}

// Refusal returns the error that rejects a container after an internal failure, and counts the rejection. It
// returns nil where the policy lets the containers of the pod start, and for a pod that has neither annotations
// nor a class.
func (n *Node) Refusal(sb *Sandbox) error {
	pol := n.Policy()
	if pol.OnError.Internal != policy.Reject {
		return nil
	}
	r, _ := sb.request(pol)
	if p := n.podOf(sb.ID); p.isNone() {
		r = n.withLive(r, sb.UID, sb.Name)
	} else {
		r = p.request.now.Load()
	}
	concerned := annotation.Concerns(sb.Annotations) || pol.Concerns(&r.PodFacts) || n.concernsLive(sb)
	if !concerned || pol.ForPod(&r.PodFacts, nil).Mode() == policy.ModeObserve {
		return nil
	}
	n.metrics.refused[annotation.Internal].Add(1)
	return cause.ErrInternal
}
