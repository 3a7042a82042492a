package node

import (
	"context"
	"errors"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/guard"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// create decides a new container's limits and returns what goes into its OCI
// spec. It writes nothing: there is no cgroup yet (docs/reference/quirks.md). It returns at the
// latest when ctx ends. An error of the policy fails the creation, with the text the
// tenant sees. A container that no call is left for is decided when it starts.
func (n *Node) create(ctx context.Context, sb *Sandbox, ctr *Container, splitsLines bool) (policy.Settings, error) {
	pod, err := n.arrived(sb)
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

// decideNew decides the limits of a new container, and returns those of its spec.
func (n *Node) decideNew(ctx context.Context, pod podIdentity, ctr *Container, splitsLines bool) (policy.Settings, error) {
	c := newContainer(pod, ctr)
	c.resolution.fresh = true
	if err := n.resolver.resolve(ctx, n.policy.Load(), n.layers.current.Load(), &c); err != nil {
		return nil, err
	}
	c.resolution.fresh, c.disks.Facts.Stage = false, policy.Running
	if err := n.refusal(&c); err != nil {
		n.pods.know(&c)
		return nil, err
	}
	if c.decision.policy.Mode() == policy.ModeObserve {
		c.logger(n.log).WithField("limits", describe(c.decision.desired)).Info("Observe mode: limits decided, not written")
		return nil, n.pods.register(ctx, &c)
	}
	spec := plan.InSpec(c.decision.desired.Settings, splitsLines)
	c.spec = plan.OCISpec{Values: plan.Kept(spec), Ours: true}
	high, _ := c.decision.desired.Settings.Get(blkio.Address{Key: blkio.MemoryHigh})
	c.disks.Facts.Guarded = uint64(high.Amount)
	return spec, n.pods.register(ctx, &c)
}

// start completes what the spec could not carry. The container's cgroup
// exists and its first user instruction has not run. Where an error of this
// event is for the log only, as with CRI-O, there is nothing to refuse any more.
// It returns at the latest when ctx ends, and leaves the rest to the reconciler.
func (n *Node) start(ctx context.Context, sb *Sandbox, ctr *Container, canRefuse bool) error {
	pod, err := n.arrived(sb)
	if pod.isNone() {
		return err
	}
	// Mostly it is known. If not, it was created while no plugin listened, or our
	// answer to that came too late. It is entered before anything that can fail or
	// hang: a container that runs is known, counted, and tried again.
	c := n.pods.enter(pod, ctr)
	err = n.inFlight.calls.Within(ctx, pod.group.key, func(ctx context.Context) error { return n.limit(ctx, c, canRefuse) })
	switch _, refused := errors.AsType[*annotation.Error](err); {
	case refused:
		n.pods.neverRan(c) // here, where the refusal is certain to be the answer
	case err != nil:
		n.pods.notLimited(c, err)
	case n.pods.waitsForProcess(c.ref):
		// To refuse it would be to refuse each try of it.
		c.logger(n.log).Warn("Container has no process in its cgroup at its start (restored from a checkpoint?): limits follow when it has one")
		n.Updated(sb.ID)
	}
	return err
}

// waitsForProcess reports whether isUnplaced holds.
func (t *podTable) waitsForProcess(c containerRef) bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	return c.In(s).isUnplaced()
}

// limit has the limits of a container that starts decided and written.
func (n *Node) limit(ctx context.Context, c identity, canRefuse bool) error {
	err := n.resolve(ctx, c)
	now := n.pods.snapshot(c.ref)
	if err == nil && canRefuse && ctx.Err() == nil {
		// It stays with the pod: should this answer come too late, it runs,
		// and has to be limited as far as that goes.
		if err := n.refusal(&now); err != nil {
			return err
		}
	}
	// Also beside a failure: the pod's backstop has to go, then.
	if err = errors.Join(err, n.applier().apply(ctx, c.pod.group, c.id)); err != nil {
		return &limitError{now.name, err}
	}
	return nil
}

// notLimited notes why the limits of a container that runs are not in force, and has
// the reconciler try again.
func (t *podTable) notLimited(of identity, err error) {
	s := t.state.Lock()
	defer t.state.Unlock()
	c := of.in(s)
	if c.decision.policy == nil { // else its limits are decided, and the error is of writing them
		c.decision.err = err
	}
	s.markDirty(c.pod.group.in(s))
}

// limitError is a failure of ours to limit a container.
type limitError struct {
	container string
	err       error
}

func (e *limitError) Error() string { return "limit container " + e.container + ": " + e.err.Error() }

func (e *limitError) Unwrap() error { return e.err }

// refusal reports whether what cannot be granted to c fails it.
func (n *Node) refusal(c *snapshot) error {
	if c.decision.err == nil {
		return nil
	}
	log := c.logger(n.log).WithError(c.decision.err)
	if !plan.Refuses(c.decision.policy, c.decision.err) {
		log.Warn("Some requested limits are not enforced")
		return nil
	}
	log.Info("Rejected a container")
	return c.decision.err
}

// arrived returns the pod of a sandbox like lookup. A panic is an error.
func (n *Node) arrived(sb *Sandbox) (found podIdentity, err error) {
	err = bounded.Guarded(func() error {
		found = n.lookup(sb)
		return nil
	})
	return found, err
}

// lookup returns the pod of a sandbox, none where it asks nothing of us.
func (n *Node) lookup(sb *Sandbox) podIdentity {
	if known := n.pods.podOf(sb.ID); !known.isNone() {
		return known
	}
	fresh, cgroup, concerned := n.parsePod(sb)
	if !concerned {
		return podIdentity{}
	}
	return n.pods.joined(fresh, cgroup)
}

func (t *podTable) podOf(sandbox string) podIdentity {
	s := t.state.Lock()
	defer t.state.Unlock()
	if pod := s.pods[sandbox]; pod != nil {
		return pod.podIdentity
	}
	return podIdentity{}
}

// joined makes a pod part of the node's state, unless another event has done so.
func (t *podTable) joined(fresh podIdentity, cgroup string) podIdentity {
	s := t.state.Lock()
	defer t.state.Unlock()
	if known := s.pods[fresh.id]; known != nil {
		return known.podIdentity
	}
	pod := s.join(fresh, cgroup)
	s.admit(pod)
	return pod.podIdentity
}

// parsePod returns the pod of a sandbox, or false if the sandbox has no annotation of ours, no class
// by the policy, and no known pod. It leaves the values of the annotations unparsed: a tenant decides
// how long that takes, and Synchronize has all pods of the node to enter in one answer.
func (n *Node) parsePod(sb *Sandbox) (_ podIdentity, cgroup string, concerned bool) {
	facts := sb.Facts()
	if !annotation.Concerns(sb.Annotations) && !n.Knows(sb.ID, sb.Cgroup) && !n.policy.Load().Concerns(&facts) {
		return podIdentity{}, "", false
	}
	pod, cgroup := n.describePod(sb)
	return pod, cgroup, true
}

// Knows reports whether a sandbox is known, or another one of the same pod. cgroup is Sandbox.Cgroup. A new
// policy may have no class for such a pod, and its cgroup may still have the limit of containers that have
// ended: that goes when one without a limit is known. It reads nothing of the node.
func (n *Node) Knows(sandbox, cgroup string) bool {
	cgroup, err := cgroupfs.PodCgroup(cgroup)
	if err != nil {
		cgroup = "" // of such a pod each sandbox is by itself
	}
	return n.pods.knows(sandbox, cgroup)
}

func (t *podTable) knows(sandbox, cgroup string) bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	return s.pods[sandbox] != nil || s.groups[groupKey(cgroup, sandbox)] != nil
}

// describePod returns the pod of a sandbox.
func (n *Node) describePod(sb *Sandbox) (podIdentity, string) {
	pod, isCut := newPod(sb, n.policy.Load())
	if isCut {
		sb.warnCut(n.log)
	}
	cgroup, err := cgroupfs.PodCgroup(sb.Cgroup)
	if err != nil {
		n.log.WithError(err).WithField("pod", pod.String()).Error("Pod totals and backstop are unavailable for this pod")
	}
	return pod, cgroup
}

// newContainer returns what the runtime told of a container.
func newContainer(pod podIdentity, ctr *Container) snapshot {
	c := snapshot{
		identity: identity{id: ctr.ID, name: ctr.Name, pod: pod, memoryLimit: ctr.memoryLimit(), token: make(chan struct{}, 1)},
		pid:      pidUnknown,
		disks:    inventory.NewContainer(ctr.Spec()),
	}
	c.cgroup, c.decision.err = cgroupfs.ContainerCgroup(ctr.Cgroup, pod.group.cgroup)
	c.spec.Values = plan.SpecValues(ctr.Unified)
	return c
}

// register makes a container part of its pod, unless the runtime waits no more
// and may have given it up: then its start does.
func (t *podTable) register(ctx context.Context, c *snapshot) error {
	s := t.state.Lock()
	defer t.state.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if old := c.pod.in(s).containers[c.id]; old != nil {
		s.handle(old, lifecycle.RemoveContainer) // its creation failed elsewhere, and is repeated
	}
	s.handle(s.add(c), lifecycle.CreateContainer)
	s.remember(c)
	s.changed(c.pod.group.in(s))
	return nil
}

// know remembers the facts of a container that does not become part of its pod.
func (t *podTable) know(c *snapshot) {
	s := t.state.Lock()
	defer t.state.Unlock()
	c.arrival = s.nextArrival()
	s.remember(c)
}

// enter finds or registers a container that starts. Until it is resolved it
// counts as one without limits.
func (t *podTable) enter(of podIdentity, ctr *Container) identity {
	s := t.state.Lock()
	defer t.state.Unlock()
	pod := of.in(s)
	c := pod.containers[ctr.ID]
	if c == nil {
		told := newContainer(pod.podIdentity, ctr)
		c = s.add(&told)
	}
	c.pid = ctr.PID   // its creation had none yet
	s.resolveAgain(c) // what was mounted after it was created may have come into it
	s.handle(c, lifecycle.StartContainer)
	return c.identity
}

// neverRan notes that the start of a container was refused. It counts as running
// until the runtime reports its end, because the runtime may not have received the answer.
func (t *podTable) neverRan(c identity) {
	s := t.state.Lock()
	defer t.state.Unlock()
	s.handle(c.in(s), lifecycle.StartRefused)
	s.markDirty(c.pod.group.in(s))
}

// add makes a container part of its pod, and completes its identity.
func (s *state) add(c *snapshot) *container {
	added := &container{}
	c.ref, c.arrival = guard.RefTo[state](added), s.nextArrival()
	added.snapshot = *c
	c.pod.in(s).containers[c.id] = added
	return added
}

func (t *podTable) snapshot(of containerRef) snapshot {
	s := t.state.Lock()
	defer t.state.Unlock()
	return of.In(s).snapshot
}

// snapshotIf reports beside the copy whether something held at that moment.
func (t *podTable) snapshotIf(of containerRef, holds func(*snapshot) bool) (snapshot, bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	c := of.In(s)
	return c.snapshot, holds(&c.snapshot)
}

// Stopped takes a container out of the pod's sums; the reconciler lowers the
// backstop. It may come for a container that was refused.
func (n *Node) Stopped(sandbox, id string) { n.pods.stopped(sandbox, id) }

func (t *podTable) stopped(sandbox, id string) {
	s := t.state.Lock()
	defer t.state.Unlock()
	pod := s.pods[sandbox]
	if pod == nil {
		s.forgetBystanding(sandbox, id)
		return
	}
	if c := pod.containers[id]; c != nil {
		s.handle(c, lifecycle.StopContainer)
	}
	s.markDirty(pod.group.in(s))
}

// Removed forgets a container.
func (n *Node) Removed(sandbox, id string) { n.pods.removed(sandbox, id) }

func (t *podTable) removed(sandbox, id string) {
	s := t.state.Lock()
	defer t.state.Unlock()
	if pod := s.pods[sandbox]; pod != nil && pod.containers[id] != nil {
		s.handle(pod.containers[id], lifecycle.RemoveContainer)
		s.markDirty(pod.group.in(s))
	}
	s.forgetBystanding(sandbox, id)
}

// RemovedPod forgets a sandbox.
func (n *Node) RemovedPod(sandbox string) { n.pods.removedPod(sandbox) }

func (t *podTable) removedPod(sandbox string) {
	s := t.state.Lock()
	defer t.state.Unlock()
	s.forgetBystander(sandbox)
	if pod := s.pods[sandbox]; pod != nil {
		s.leave(pod, lifecycle.RemovePodSandbox)
	}
}

// Updated has the limits of a pod restored that an update of a container may have reverted.
func (n *Node) Updated(sandbox string) { n.pods.updated(sandbox) }

func (t *podTable) updated(sandbox string) {
	s := t.state.Lock()
	defer t.state.Unlock()
	if pod := s.pods[sandbox]; pod != nil {
		s.markDirty(pod.group.in(s))
	}
}

func (c *identity) logger(log logrus.FieldLogger) logrus.FieldLogger {
	return log.WithFields(logrus.Fields{"pod": c.pod.String(), "container": c.name})
}
