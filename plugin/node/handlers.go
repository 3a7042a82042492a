package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// This file has the handlers of the runtime's events, without the creation (create.go).

// start writes the limits that the spec could not carry. The container's cgroup exists, and its first
// instruction has not run. canRefuse is false where the runtime only logs an error of this event, as CRI-O
// does. start returns at the latest when ctx ends, and leaves the rest to the reconciler.
func (n *Node) start(ctx context.Context, sb *Sandbox, ctr *Container, canRefuse bool) error {
	pod, err := n.lookupGuarded(sb)
	if pod.isNone() {
		return err
	}
	// The container is known, unless no plugin listened when it was created, or the answer to its creation came
	// too late. It is entered before any step that can fail or hang, so that a running container is known and
	// counted, and its limits are retried.
	c := n.findOrRegister(pod, ctr)
	err = n.inFlight.calls.Within(ctx, pod.group.key, func(ctx context.Context) error { return n.limit(ctx, c, canRefuse) })
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
		if err := n.refusalAtStart(&now); err != nil {
			return err
		}
	}
	n.startAccepted(c)
	// This is also needed after a failure: the pod's backstop has to be removed.
	err = errors.Join(err, n.apply(ctx, c.pod.group, c.id))
	n.lend(c.pod.group)
	if n.tell(c.pod.group); err != nil {
		return &limitError{now.name, err}
	}
	return nil
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
	if c.decision.policy == nil { // once the limits are decided, the error is that of a write
		c.redecide(func(d *decision) { d.err = err })
	}
	s.markDirty(c.pod.group.in(s))
}

// limitError is an internal failure to limit a container.
type limitError struct {
	container string
	err       error
}

func (e *limitError) Error() string { return "limit container " + e.container + ": " + e.err.Error() }

func (e *limitError) Unwrap() error { return e.err }

// lookupGuarded returns the pod of a sandbox as lookup does. It turns a panic into an error.
func (n *Node) lookupGuarded(sb *Sandbox) (found podIdentity, err error) {
	err = n.recovery.Guarded(func() error {
		found = n.lookup(sb)
		return nil
	})
	return found, err
}

// lookup returns the pod of a sandbox, and none if the sandbox is of no concern to the plugin.
func (n *Node) lookup(sb *Sandbox) podIdentity {
	if known := n.podOf(sb.ID); !known.isNone() {
		return known
	}
	fresh, cgroup, concerned := n.parsePod(sb)
	if !concerned {
		return podIdentity{}
	}
	return n.enter(fresh, cgroup, n.isListed.Load())
}

// podOf returns the pod of a sandbox, and none if nothing concerns it.
func (n *Node) podOf(sandbox string) podIdentity {
	s := n.state.Lock()
	defer n.state.Unlock()
	if pod := s.pods[sandbox]; pod != nil && s.concerns(pod.group.in(s)) {
		return pod.podIdentity
	}
	return podIdentity{}
}

// enter makes a pod part of the state that something concerns. If the runtime has listed its pods, an unknown sandbox is a new one, of
// which no earlier process has left an edit.
func (n *Node) enter(fresh podIdentity, cgroup string, listed bool) podIdentity {
	s := n.state.Lock()
	defer n.state.Unlock()
	pod := s.pods[fresh.id]
	switch {
	case pod == nil:
		pod = s.join(fresh, cgroup)
		pod.isNew = listed
	case s.concerns(pod.group.in(s)):
		return pod.podIdentity
	default:
		pod.request.now.Store(fresh.request.now.Load()) // with labels that were not kept
	}
	s.inheritNamespace(pod)
	// The record of an earlier sandbox may have the labels of the namespace.
	pod.restored = pod.isNew && pod.request.now.Load().NamespaceLabels.Know(s.namespaceKeys)
	s.concern(pod.group.in(s), false)
	s.revise(pod)
	return pod.podIdentity
}

// parsePod returns the pod of a sandbox. concerned is false if the sandbox has no annotation of this domain, no
// class or budget by the policy, and nothing concerned it before. It leaves the values of the annotations unparsed: a tenant
// decides how long parsing takes, and Synchronize enters all pods of the node within one answer.
func (n *Node) parsePod(sb *Sandbox) (_ podIdentity, cgroup string, concerned bool) {
	pod, isCut := newPod(sb, n.policy.Load())
	concerned = sb.Concerns(n.policy.Load()) || n.Knows(sb.ID, sb.Cgroup) || n.concernsLive(sb)
	if isCut {
		sb.warnCut(n.log)
	}
	cgroup, err := cgroupfs.PodCgroup(sb.Cgroup)
	if err != nil && concerned {
		n.log.WithError(err).WithField("pod", pod.String()).Error("Pod totals and backstop are unavailable for this pod")
	}
	return pod, cgroup, concerned
}

// Knows reports whether something concerns a sandbox of the state, or another sandbox of the same pod. cgroup is Sandbox.Cgroup.
// A new policy may have no class for such a pod, while its cgroup still has the limit of ended containers. That
// limit is removed once a container without a limit is known. Knows reads nothing of the node.
func (n *Node) Knows(sandbox, cgroup string) bool {
	cgroup, err := cgroupfs.PodCgroup(cgroup)
	if err != nil {
		cgroup = "" // without a cgroup, each sandbox of a pod is on its own
	}
	s := n.state.Lock()
	defer n.state.Unlock()
	g := s.groups[groupKey(cgroup, sandbox)]
	return g != nil && s.concerns(g)
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
	if c.start = startDue; c.vetting != vetted {
		c.start = startUnvetted
	}
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
	s.handle(refused, lifecycle.StartRefused)
	if refused.start != startUnvetted {
		refused.start = startAnswered
	} else {
		if refused.start = startRefused; refused.isLate() {
			refused.vetting = unvetted // if it runs nevertheless, it is late again, and the pod has limits on its disks as well
		}
		s.remember(&refused.snapshot)
	}
	s.markDirty(c.pod.group.in(s))
}

// startAccepted notes that a container starts, whether or not the budget was asked.
func (n *Node) startAccepted(of identity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	c, g := of.in(s), of.pod.group.in(s)
	if c.start == startUnvetted && c.decision.policy != nil {
		of.pod.in(s).total = c.decision.total
		s.recount(g)
	}
	c.start = startAnswered
	g.told.look()
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
