package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/handover"
	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file has the right to write a group's cgroups. It plans their values by a view of the state, writes them, and notes what was
// written.

// enforcer returns the Enforcer that puts plans into force.
func (n *Node) enforcer() *enforce.Enforcer {
	storage := n.storage
	return &enforce.Enforcer{Cgroups: n.cgroups, IsRemoved: func(d blkio.Dev) bool { return storage.Device(d).Missing }}
}

// apply writes the plan of a group to its cgroups. If only is set, it writes only that container and the pod's
// cgroup, because the start of a container must not wait for its neighbours. It waits for another writer until
// ctx ends.
func (n *Node) apply(ctx context.Context, g groupIdentity, only string) error {
	if !g.token.Take(ctx.Done()) {
		return fmt.Errorf("wait for a write to the pod's cgroups: %w", ctx.Err())
	}
	defer n.release(g)
	return n.write(g, only)
}

// write writes the plan of a group to its cgroups. The caller holds the group's token.
func (n *Node) write(g groupIdentity, only string) error {
	return n.writeTargets(g, n.planFor(g), only, logrus.InfoLevel)
}

// writeTargets writes a plan of a group to its cgroups. The caller holds the group's token.
func (n *Node) writeTargets(g groupIdentity, targets *enforce.Targets, only string, level logrus.Level) error {
	var errs []error
	n.enforcer().Apply(targets, only, func(r *enforce.Result) {
		n.logWritten(r, level)
		n.noteCompared(g, r)
		if r.Target.Container == "" {
			errs = append(errs, r.Err)
		} else {
			errs = append(errs, n.written(g, r, targets.Pod.Want, only != ""))
		}
	})
	return errors.Join(errs...)
}

// noteCompared notes whether an operator has cleared a cgroup, which has no demand for a weight then, and the limits of other programs
// in the cgroup of the pod.
func (n *Node) noteCompared(of groupIdentity, r *enforce.Result) {
	var foreign []string
	for _, s := range r.Foreign {
		foreign = append(foreign, s.OnDisk(r.Target.Record.Disks))
	}
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	switch cgroup := r.Target.Cgroup; {
	case !r.Cleared:
		delete(g.recorded.cleared, cgroup)
	case g.recorded.cleared == nil:
		g.recorded.cleared = map[string]bool{cgroup: true}
	default:
		g.recorded.cleared[cgroup] = true
	}
	if text := strings.Join(foreign, ", "); r.Target.Container == "" && r.Compared && text != g.foreign {
		g.foreign = text
		g.told.Look()
	}
}

// cgroupReads has the results of reads of a container's cgroup after a write to it.
type cgroupReads struct {
	ids       []uint64 // of the cgroup and those below it; nil if they were not read
	populated bool     // the cgroup has a process
}

// written updates the state after a write to the cgroup of a container. It asks the state what to read of the
// cgroup, and passes the results to it.
func (n *Node) written(g groupIdentity, r *enforce.Result, pod policy.Settings, starting bool) error {
	c, ids, process := n.pendingReads(g, r)
	if c.id == "" {
		return nil // the container has left the state
	}
	var f cgroupReads
	if ids {
		if all, err := r.Cgroup.IDs(); err == nil { // after an error the cgroup was removed, or the next comparison repeats the read
			f.ids = all
		}
	}
	if process {
		populated, err := n.cgroups.Cgroup(c.cgroup).Populated()
		f.populated = err != nil || populated // after an error too, because the cgroup was written to
	}
	var plan *handover.Plan
	if r.Compared && n.policy.Load().Writeback.HandOver {
		fresh := handover.NewPlan(r.Want, pod)
		plan = &fresh
	}
	watch, err := n.noteWritten(c, r, &f, plan, starting)
	if watch != nil {
		n.watchExit(c, r.Cgroup, watch)
	}
	if errors.Is(r.Err, blkio.ErrGone) {
		return err
	}
	return errors.Join(r.Err, err)
}

// pendingReads returns the container of a write, without an ID if it has left the state. ids is true if the IDs of
// the cgroup have to be read, which is done once. process is true if it is not known whether a container that
// starts has its first process. Before that, the exit watch would take the container for an ended one.
func (n *Node) pendingReads(g groupIdentity, r *enforce.Result) (c identity, ids, process bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, pod := range g.in(s).pods {
		if c := pod.container(r.Target.Container); c != nil {
			gone := errors.Is(r.Err, blkio.ErrGone)
			return c.identity, r.Compared && c.mayRun() && c.exit.cgroupIDs == nil, !gone && c.isUnplaced()
		}
	}
	return identity{}, false, false
}

// noteWritten notes the result of a write, and of the reads after it. plan is the new exit plan, nil if it is
// unchanged. noteWritten returns the watch to which the container's cgroup has to be added, or nil.
//
// A running container without a cgroup has ended, and its StopContainer event is under way or was missed. Or
// the runtime has not created its cgroup yet. The latter is an error if there are limits to write, except while
// the container starts.
func (n *Node) noteWritten(of identity, r *enforce.Result, f *cgroupReads, plan *handover.Plan, starting bool) (handover.Adder, error) {
	s := n.state.Lock()
	defer n.state.Unlock()
	c := of.in(s)
	if f.ids != nil && c.mayRun() {
		c.exit.cgroupIDs = f.ids
	}
	if f.populated {
		s.handle(c, lifecycle.CgroupPopulated)
	}
	switch {
	case plan != nil:
		c.exit.plan = plan
	case r.Compared: // the hand-over is disabled, and the limits may have changed
		c.exit.plan = nil
	}
	gone := errors.Is(r.Err, blkio.ErrGone)
	if gone && !starting {
		s.handle(c, lifecycle.CgroupMissing)
	}
	var watch handover.Adder
	if plan != nil && c.life.Phase().MayBeWatched() && (len(plan.Limited) > 0 || len(plan.Limits) > 0) {
		watch = s.watch
	}
	switch starts := c.life.Phase() == lifecycle.Starting; {
	case starting: // see isUnplaced
	case starts && !r.Target.Record.Empty():
		return watch, fmt.Errorf("limit container %s: its cgroup has no process yet", c.name)
	case gone && !starts:
		s.markDirty(c.pod.group.in(s))
	}
	return watch, nil
}

// logWritten logs and counts the lines that were written.
func (n *Node) logWritten(r *enforce.Result, level logrus.Level) {
	if r.Unreadable != nil {
		n.log.WithError(r.Unreadable).WithField("cgroup", r.Target.Cgroup).Warn("Replacing an unreadable record")
	}
	if len(r.Written) == 0 {
		return
	}
	pod := r.Target.Record.Namespace + "/" + r.Target.Record.Pod
	for _, l := range r.Written {
		fields := logrus.Fields{"pod": pod, "cgroup": r.Target.Cgroup, l.File: l.Text}
		if name := r.Target.Record.Container; name != "" {
			fields["container"] = name
		}
		message := "Wrote limit"
		if l.File == blkio.IOMax {
			n.metrics.Written.Add(1)
		} else {
			message = "Wrote weight"
		}
		n.log.WithFields(fields).Log(level, message)
	}
}

// planFor returns the plan for a group's cgroups. The time to decide the pod total grows with the text of
// tenants, so this happens without the lock. The caller holds the group's token.
func (n *Node) planFor(of groupIdentity) *enforce.Targets {
	if known := n.planOf(of); known != nil {
		return known
	}
	unread := n.recall(of) // a plan without the record's values would remove them; inspect reports the error
	v := n.viewOf(of)
	if pol := n.policy.Load(); v.pod.isNone() {
		v.Pod.Policy = pol.ForPod(nil, nil)
	} else {
		v.Pod.Policy = v.request.Under(pol) // may parse the annotations, so without the lock
	}
	fresh := enforce.NewTargets(plan.New(v.View), of.written)
	n.notePlan(&v, fresh, unread == nil)
	return fresh
}

// notePlan notes the plan of a view of a group. It keeps the plan if the view was complete and the group has
// not changed since.
func (n *Node) notePlan(v *view, fresh *enforce.Targets, complete bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := v.group.in(s)
	granted := fresh.Pod.Granted
	if v.shared { // the cgroup has no limits until the other pod has left
		granted = g.recorded.granted.OnlyCarried()
	}
	g.recorded.granted, g.recorded.weights = &granted, fresh.Pod.Weights
	s.recount(g)
	if complete && g.changes == v.changes {
		g.plan = &planned{Targets: fresh}
	}
}

// planOf returns the plan of a group, nil after a change.
func (n *Node) planOf(g groupIdentity) *enforce.Targets {
	s := n.state.Lock()
	defer n.state.Unlock()
	if known := g.in(s).plan; known != nil {
		return known.Targets
	}
	return nil
}

// view is a copy of the facts from which a plan is made.
type view struct {
	plan.View
	group   groupIdentity
	pod     podIdentity       // the pod that has the pod's cgroup now; none without a pod
	request *podfacts.Request // of pod
	shared  bool              // other pods are in the pod's cgroup
	changes int
}

// viewOf returns a view of a group.
func (n *Node) viewOf(of groupIdentity) view {
	controls := n.controls.Effect() // may read a file
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	v := view{group: of, shared: g.shared(), changes: g.changes}
	v.Controls, v.Drained = controls, g.drain.Phase() == lifecycle.Drained
	live := false
	var last *podfacts.Edit
	for _, pod := range g.pods {
		before := len(v.Running)
		v.Running = slices.Grow(v.Running, len(pod.containers))
		for _, c := range pod.containers {
			if c.mayRun() {
				v.Running = append(v.Running, c.planned())
			}
			v.Partial = v.Partial || c.isPartial()
		}
		// Of two sandboxes of a pod the later one counts, once a container of it has started.
		if begun := len(v.Running) > before; begun || !live {
			live = live || begun
			v.Pod, v.pod, v.request = plan.Pod{Namespace: pod.namespace, Name: pod.name, UID: pod.uid}, pod.podIdentity, pod.request.now.Load()
			v.Pod.Seen, v.Pod.Complete = policy.UnlessAllRejected(pod.seen()), pod.isComplete()
			v.Pod.Begun, v.Pod.Granted = begun, g.grantedTo(pod)
			v.Pod.Live = plan.Live{Rejected: pod.edit.err, Unknown: pod.edit.unknown}
		}
		if edit := pod.request.now.Load().Edit(pod.id); edit != nil {
			last = edit
		}
	}
	// The record has room for one edit. That of the last sandbox is the one that a restarted plugin needs: containers of
	// the others have been decided, and have records of their own.
	v.Pod.Live.Edit = last
	v.Pod.Exits = g.recorded.exits
	if !v.shared && !v.pod.isNone() {
		v.Pod.Cgroup = v.group.cgroup
	}
	return v
}

// planned returns the facts about a container that a plan needs.
func (c *snapshot) planned() plan.Container {
	return plan.Container{
		ID: c.id, Name: c.name, Cgroup: c.cgroup, Desired: c.inForce(), Lent: c.pod.lent.Load().Noted(), Policy: c.decision.policy,
		Err: c.decision.err, Spec: c.spec,
		Gaps: plan.Gaps{Undecided: c.decision.policy == nil, Partial: c.isPartial()}, Unvetted: c.needsVetting(),
	}
}

// takeNow takes the right to write a group's cgroups, unless another goroutine has it.
func (g groupIdentity) takeNow() error {
	switch {
	case g.token.TryTake():
		return nil
	case g.writeHangs():
		return cause.ErrWriteHangs
	}
	return errWritten
}

// errWritten is the error of a write to a group that another goroutine is writing. It is retried, and is no problem.
var errWritten = errors.New("another goroutine is writing")

// writeHangs reports whether a write to the group's cgroups takes too long.
func (g *groupFacts) writeHangs() bool { return g.token.HeldFor() > passDeadline }

// release gives the right to write a group's cgroups back. The reconciler may wait for it until a retry.
func (n *Node) release(of groupIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	g.token.Return()
	s.drop(g)
	if g.entry.IsDue() && s.queue.Hasten(&g.entry, time.Now()) {
		reminder.Wake(s.wake)
	}
}
