package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/node/notice"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// This file has the handlers of the runtime's events.

// start writes the limits that the spec could not carry. The container's cgroup exists, and its first
// instruction has not run. canRefuse is false where the runtime only logs an error of this event, as CRI-O
// does. start returns at the latest when ctx ends, and leaves the rest to the reconciler.
func (n *Node) start(ctx context.Context, sb *Sandbox, ctr *Container, canRefuse bool) error {
	pod, isConcerned := n.enter(sb)
	if !isConcerned {
		return nil
	}
	// The container is known, unless no plugin listened when it was created, or the answer to its creation came
	// too late. It is entered before any step that can fail or hang, so that a running container is known and
	// counted, and its limits are retried.
	c := n.findOrRegister(pod, ctr)
	err := n.inFlight.calls.Within(ctx, pod.group.key, func(ctx context.Context) error { return n.limit(ctx, c, canRefuse) })
	now := n.snapshot(c.ref)
	switch _, refused := errors.AsType[*annotation.Error](err); {
	case refused:
		n.noteStartRefused(c) // only here the runtime is certain to receive the refusal
	case err != nil:
		n.notLimited(c, err)
	case now.isUnplaced():
		// A refusal would fail each retry as well.
		c.logger(n.log).Warn("Container has no process in its cgroup at its start (restored from a checkpoint?): limits follow when it has one")
		n.Updated(sb.ID)
	}
	return err
}

// limit decides and writes the limits of a container that starts.
func (n *Node) limit(ctx context.Context, c identity, canRefuse bool) error {
	err := n.recall(c.pod.group)
	now := n.snapshot(c.ref)
	n.compareLayer(ctx, &now)
	if err == nil {
		err = n.resolve(ctx, c)
	}
	now = n.snapshot(c.ref)
	if err == nil && canRefuse && ctx.Err() == nil {
		// The container stays part of the pod: it runs if this answer comes too late, and then needs its
		// limits.
		if refusal := now.refusal(); refusal != nil {
			if now.isLate() {
				n.metrics.OverBudget.Add(1)
			}
			return refusal
		}
	}
	n.noteStarted(c)
	// This is also needed after a failure: the pod's backstop has to be removed.
	err = errors.Join(err, n.apply(ctx, c.pod.group, c.id))
	n.lend(c.pod.group)
	if n.tell(c.pod.group); err != nil {
		return fmt.Errorf("limit container %s: %w", now.name, err)
	}
	return nil
}

// resolve finds the disks of a container, and decides its pod. The reconciler writes what that changes for other containers.
func (n *Node) resolve(ctx context.Context, of identity) error {
	err := n.find(ctx, of)
	decided, unsettled := n.decidePod(ctx, of.pod)
	if decided {
		n.markDirty(of.pod.group)
	}
	return cmp.Or(err, unsettled)
}

// compareLayer compares the location of the layers of a container that starts with the root mount of its process.
func (n *Node) compareLayer(ctx context.Context, c *snapshot) {
	handler := c.pod.request.now.Load().Handler
	if c.pid <= 0 || !slices.Contains(n.policy.Load().HostKernelHandlers, handler) {
		return
	}
	if err := n.layers.Compare(ctx, n.finder().inventory(), handler, c.pid, c.cgroup); err != nil {
		c.logger(n.log).WithError(err).Warn("Comparing the location of writable layers failed")
	}
}

// notLimited notes why the limits of a running container are not in force, and has the reconciler retry.
func (n *Node) notLimited(of identity, err error) {
	s := n.state.Lock()
	defer n.state.Unlock()
	c := of.in(s)
	if c.isStarting = false; c.decision.policy == nil { // once the limits are decided, the error is that of a write
		c.redecide(func(d *decision) { d.err = err })
	}
	s.markDirty(c.pod.group.in(s))
}

// findOrRegister finds or registers a container that starts. Until it is resolved it counts as a container without
// limits.
func (n *Node) findOrRegister(of podIdentity, ctr *Container) identity {
	s := n.state.Lock()
	defer n.state.Unlock()
	pod := of.in(s)
	c := pod.container(ctr.ID)
	if c == nil {
		c = s.addReported(pod, ctr)
	}
	c.isStarting = true
	c.pid = ctr.PID   // CreateContainer reports no process
	s.resolveAgain(c) // mounts that were made after its creation may have propagated into it
	s.handle(c, lifecycle.StartContainer)
	return c.identity
}

// noteStartRefused notes that the start of a container was refused. It counts as running until the runtime reports its
// end, because the runtime may not have received the answer.
func (n *Node) noteStartRefused(c identity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	refused := c.in(s)
	refused.isStarting = false
	s.handle(refused, lifecycle.StartRefused)
	s.markDirty(c.pod.group.in(s))
}

// noteStarted notes that a container starts, with its limits or not.
func (n *Node) noteStarted(of identity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	of.in(s).isStarting = false
	of.pod.group.in(s).told.Look()
}

// Stopped removes a container from the pod's sums; the reconciler then lowers the backstop. The runtime may
// also report it for a container that was rejected.
func (n *Node) Stopped(sandbox, id string) {
	s := n.state.Lock()
	defer n.state.Unlock()
	pod := s.pods[sandbox]
	if pod == nil {
		return
	}
	if c := pod.container(id); c != nil {
		s.handle(c, lifecycle.StopContainer)
	}
	s.markDirty(pod.group.in(s))
}

// Removed forgets a container.
func (n *Node) Removed(sandbox, id string) {
	s := n.state.Lock()
	defer n.state.Unlock()
	if pod := s.pods[sandbox]; pod != nil {
		if c := pod.container(id); c != nil {
			s.handle(c, lifecycle.RemoveContainer)
			s.markDirty(pod.group.in(s))
		}
	}
}

// RemovedPod forgets a sandbox.
func (n *Node) RemovedPod(sandbox string) {
	s := n.state.Lock()
	defer n.state.Unlock()
	if pod := s.pods[sandbox]; pod != nil {
		s.leave(pod, lifecycle.RemovePodSandbox)
	}
}

// Updated restores those limits of a pod that an update of a container may have reverted.
func (n *Node) Updated(sandbox string) {
	s := n.state.Lock()
	defer n.state.Unlock()
	if pod := s.pods[sandbox]; pod != nil {
		s.markDirty(pod.group.in(s))
	}
}

// Registered asks a runtime that registers the plugin where it stores writable layers, and waits at most
// patience for the answer. A late answer is still used for the containers that are created after it.
func (n *Node) Registered(ctx context.Context, runtime, version string, patience time.Duration) {
	err := n.inFlight.calls.For(ctx, "", patience, func(ctx context.Context) error {
		n.layers.AskAtRegistration(ctx, runtime, version)
		return nil
	})
	if err != nil {
		n.log.WithError(fmt.Errorf("locate writable layers: %w", err)).Error("Locating writable layers failed: rootfs uses the previous location")
	}
}

// noteRefused notes that a container is rejected. The kubelet tries again, and each time counts.
func (n *Node) noteRefused(sb *Sandbox, container string, refusal error) {
	n.note(notice.Event{Of: sb.named(), Reason: podevent.Refused, Key: cause.Of(refusal).About(container), Note: containerText(container) + " is rejected: " + refusal.Error()})
}

// create decides a new container's limits and returns those of its OCI spec. It writes nothing, because there
// is no cgroup yet (docs/reference/quirks.md). It returns at the latest when ctx ends. An error of the policy
// fails the creation, with the text that the tenant sees. A container for which no call is left is decided when
// it starts.
func (n *Node) create(ctx context.Context, sb *Sandbox, ctr *Container, splitsLines bool) (policy.Settings, error) {
	pod, isConcerned := n.enter(sb)
	if !isConcerned {
		return nil, nil
	}
	var spec policy.Settings
	err := n.inFlight.calls.Within(ctx, pod.group.key, func(ctx context.Context) (err error) {
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
		// No earlier process knew it, and it has no process whose mounts could be compared.
		c.recalled = noRecord
		if _, err := n.finder().find(ctx, soughtBy(of), n.layers.Current(), &c); err != nil {
			return nil, err
		}
		total := v.decide(v.request, of, []*snapshot{&c}, n.controls.Missing())
		spec, err := n.admit(ctx, &v, &c, total, ctr, splitsLines)
		if !errors.Is(err, errStale) {
			return spec, err
		}
	}
}

// admit makes a new container part of its pod, and returns the limits of its spec. The container was decided by the view, and total are
// the limits of the pod as a whole with it.
func (n *Node) admit(ctx context.Context, v *podView, c *snapshot, total policy.Settings, ctr *Container, splitsLines bool) (spec policy.Settings, _ error) {
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
	excess, err := n.commitNew(ctx, v, c, total, refusal != nil)
	if err != nil {
		return nil, err
	}
	if refusal != nil {
		return nil, refusal
	}
	n.tell(c.pod.group) // it may have ended before the next turn
	if pol.Mode() == policy.ModeObserve {
		c.logger(n.log).WithField("limits", describe(c.decision.desired)).Info("Observe mode: limits decided, not written")
	}
	return spec, n.exceeded(c, excess)
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

// verdict decides by the cause of an error whether it fails the container, and logs it.
func (n *Node) verdict(err error, sb *Sandbox, ctr *Container) error {
	if err == nil {
		return nil
	}
	log := n.log.WithError(err).WithFields(logrus.Fields{"pod": sb.Namespace + "/" + sb.Name, "container": ctr.Name})
	if refusal, ok := errors.AsType[*annotation.Error](err); ok {
		log.Info("Rejected a container")
		n.metrics.Refused[refusal.Kind()].Add(1)
		n.noteRefused(sb, ctr.Name, refusal)
		return refusal
	}
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
	pol := n.policy.Load()
	if pol.OnError.Internal != policy.Reject {
		return nil
	}
	pod, _ := n.enter(sb)
	r := pod.request.now.Load()
	isConcerned := annotation.Concerns(sb.Annotations) || pol.Concerns(&r.PodFacts) || n.concernsNow(r, pod.uid, pod.name)
	if !isConcerned || pol.ForPod(&r.PodFacts, nil).Mode() == policy.ModeObserve {
		return nil
	}
	n.metrics.Refused[annotation.Internal].Add(1)
	return cause.ErrInternal
}
