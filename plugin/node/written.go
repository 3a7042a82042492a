package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/plugin/handover"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
)

// applier plans what is to be on the cgroups of groups, and puts that into force.
type applier struct {
	*environment
	pods    *podTable
	policy  *atomic.Pointer[policy.Policy]
	listing *listing
	metrics *metrics
}

func (n *Node) applier() applier {
	return applier{&n.environment, &n.pods, &n.policy, &n.listing, n.metrics}
}

// enforcer returns what puts plans into force.
func (a applier) enforcer() *enforce.Enforcer {
	storage := a.storage
	return &enforce.Enforcer{Cgroups: a.cgroups, Gone: func(d blkio.Dev) bool { return storage.Device(d).Missing }}
}

// apply brings the cgroups of a group into line. With only set, of the
// containers only that one is looked at: the start of a container must not
// wait for its neighbours. It waits for another writer until ctx ends.
func (a applier) apply(ctx context.Context, g groupIdentity, only string) error {
	if !a.pods.take(g, ctx.Done()) {
		return fmt.Errorf("wait for a write to the pod's cgroups: %w", ctx.Err())
	}
	defer a.pods.release(g)
	return a.write(g, only)
}

// write applies the pod's settings; the caller holds the pod's token.
func (a applier) write(g groupIdentity, only string) error {
	targets := a.planFor(g)
	var errs []error
	a.enforcer().Apply(targets, only, func(r *enforce.Result) {
		a.tell(r)
		a.pods.noteCleared(g, r)
		if r.Target.Container == "" {
			errs = append(errs, r.Err)
		} else {
			errs = append(errs, a.written(g, r, targets.Pod.Want, only != ""))
		}
	})
	return errors.Join(errs...)
}

// noteCleared notes whether an operator has cleared a cgroup: its weight is not asked for then.
func (t *podTable) noteCleared(g groupIdentity, r *enforce.Result) {
	s := t.state.Lock()
	defer t.state.Unlock()
	recorded := &g.in(s).recorded
	switch cgroup := r.Target.Cgroup; {
	case !r.Cleared:
		delete(recorded.cleared, cgroup)
	case recorded.cleared == nil:
		recorded.cleared = map[string]bool{cgroup: true}
	default:
		recorded.cleared[cgroup] = true
	}
}

// found is what was read of a container's cgroup beside a write to it.
type found struct {
	ids       []uint64 // of the cgroup and those below it; nil if they were not read
	populated bool     // there is a first process
}

// written draws the conclusions from a write to the cgroup of a container: it asks the state
// what is to be read there, and tells it what was.
func (a applier) written(g groupIdentity, r *enforce.Result, pod policy.Settings, starting bool) error {
	c, ids, process := a.pods.unread(g, r)
	if c.id == "" {
		return nil // it has left
	}
	var f found
	if ids {
		if all, err := r.Cgroup.IDs(); err == nil { // else it is gone, or the next look finds them
			f.ids = all
		}
	}
	if process {
		populated, err := a.cgroups.Cgroup(c.cgroup).Populated()
		f.populated = err != nil || populated // also if it cannot be known: the cgroup was written to
	}
	var plan *handover.Plan
	if r.Compared && a.policy.Load().Writeback.HandOver {
		fresh := handover.NewPlan(r.Want, pod)
		plan = &fresh
	}
	watch, err := a.pods.noteWritten(c, r, &f, plan, starting)
	if watch != nil {
		a.hold(c, r.Cgroup, watch)
	}
	if errors.Is(r.Err, blkio.ErrGone) {
		return err
	}
	return errors.Join(r.Err, err)
}

// unread returns a container of a group, without an ID if it has left, and what is to be read of its
// cgroup: its IDs while it is there, which is done once, and whether the first process of a
// container that starts is there. Until it is, the exit watch would take the cgroup for that
// of a container that has ended.
func (t *podTable) unread(g groupIdentity, r *enforce.Result) (c identity, ids, process bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	for _, pod := range g.in(s).pods {
		if c := pod.containers[r.Target.Container]; c != nil {
			gone := errors.Is(r.Err, blkio.ErrGone)
			return c.identity, r.Compared && c.mayRun() && c.exit.cgroupIDs == nil, !gone && c.isUnplaced()
		}
	}
	return identity{}, false, false
}

// noteWritten notes what was written and read, and what is to be done at the end of the
// container: plan is nil if that is as it was. It returns the watch that the container
// needs, or nil. A container that runs, as far as is known, and has no cgroup has ended, and
// its StopContainer event is under way or was missed; or the runtime has not placed it yet.
// The latter is an error where something is to be written, except while it starts.
func (t *podTable) noteWritten(of identity, r *enforce.Result, f *found, plan *handover.Plan, starting bool) (handover.Adder, error) {
	s := t.state.Lock()
	defer t.state.Unlock()
	c := of.in(s)
	if f.ids != nil && c.mayRun() {
		c.exit.cgroupIDs = f.ids
	}
	if f.populated {
		s.handle(c, lifecycle.CgroupPopulated)
	}
	switch {
	case plan != nil:
		c.exit.plan, c.exit.planned = *plan, true
	case r.Compared: // the hand-over is switched off, and the limits may have changed
		c.exit.planned = false
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

// tell logs and counts what was written.
func (a applier) tell(r *enforce.Result) {
	if r.Unreadable != nil {
		a.log.WithError(r.Unreadable).WithField("cgroup", r.Target.Cgroup).Warn("Replacing an unreadable record")
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
			a.metrics.written.Add(1)
		} else {
			message = "Wrote weight"
		}
		a.log.WithFields(fields).Info(message)
	}
}
