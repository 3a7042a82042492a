package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// This file has the reconciler: the passes over all pods, the turns in which workers take groups from the queue, and the work on one
// group.

// firstPause is the time from a group's first failure to the first retry.
const firstPause = 100 * time.Millisecond

// reconcile keeps the cgroups equal to the desired values until ctx ends. It reconciles a pod after each event
// that changed it, and all pods at every resync and when disks change.
func (n *Node) reconcile(ctx context.Context) {
	var workers sync.WaitGroup
	defer waitFor(&workers, passDeadline) // one can hang in the kernel
	tick, due := time.NewTicker(n.resync), time.NewTimer(0)
	defer tick.Stop()
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-due.C:
		case <-n.wake:
		case <-tick.C:
			n.recovery.Step("find mounts", func() {
				n.searchAgain(func(c *snapshot) bool { return c.disks.Follows() }) // there may have been no event
			})
			n.beginPass(ctx)
		case <-n.all:
			n.beginPass(ctx)
		}
		for next, ok := n.nextTurn(ctx); ok; next, ok = n.nextTurn(ctx) {
			workers.Go(func() { n.work(ctx, next) })
		}
		if at, waits := n.nextDue(); waits {
			due.Reset(time.Until(at))
		}
		n.endPass()
	}
}

// waitFor waits for goroutines, at most d.
func waitFor(all *sync.WaitGroup, d time.Duration) {
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(d):
	}
}

// beginPass has every pod compared with its cgroups. A pass finds limits that another program edited, a disk that was removed
// and has returned, a weight that systemd reset, and a start that was missed.
func (n *Node) beginPass(ctx context.Context) {
	began := time.Now()
	n.recovery.Step("find pods without a cgroup", n.findRemovedBystanders)
	n.recovery.Step("find support for weights", func() {
		if n.controls.Refresh() {
			n.markAllDirty() // the warning of a weight appears or disappears
		}
	})
	n.cgroups.CloseUnread()
	n.shared.Store(newSharedReads(&n.environment))
	hung, unreadable := n.markAllDue(began)
	n.recovery.Step("tell notices", func() { n.tellOfNode(unreadable) })
	for _, g := range hung {
		n.noteProblem(ctx, g, cause.ErrWriteHangs)
		n.tell(g) // its turn may never end
	}
}

// endPass counts a pass whose last pod was reconciled.
func (n *Node) endPass() {
	s := n.state.Lock()
	defer n.state.Unlock()
	n.countPass(s)
}

func (n *Node) countPass(s *state) {
	if began, ended := s.queue.EndPass(); ended {
		n.metrics.Passes.Observe(time.Since(began).Seconds())
	}
}

// work reconciles a group that was taken from the queue, and then other ones while they are due.
func (n *Node) work(ctx context.Context, next turn) {
	defer reminder.Wake(n.wake) // the reconciler waits for the group that is due next
	for ok := true; ok; next, ok = n.nextTurn(ctx) {
		n.reconcileTurn(ctx, next)
	}
}

// reconcileTurn reconciles a group that was taken from the queue. A panic ends one step of it.
func (n *Node) reconcileTurn(ctx context.Context, t turn) {
	g, isDone := t.groupIdentity, t.concern < concerned
	if isDone { // nothing else is due for bystanders
		n.recovery.Step("find recorded pods", func() { n.findRecord(g) })
	} else if t.inPass {
		n.recovery.Step("compare a pod", func() { isDone = n.staysSteady(ctx, &t) })
	}
	if !isDone {
		n.reconcileFully(ctx, g, t.inPass)
	}
	n.endTurn(g)
}

// reconcileFully does all that is due for a group that something concerns.
func (n *Node) reconcileFully(ctx context.Context, g groupIdentity, inPass bool) {
	if inPass {
		n.findForPass(ctx, g)
	}
	if ctx.Err() == nil {
		n.recovery.Step("reconcile a pod", func() { n.reconcileGroup(ctx, g) })
	}
	n.recovery.Step("lend limits", func() { n.lend(g) })
	if inPass {
		n.recovery.Step("find complete pods", func() { n.noteComplete(g) })
	}
	n.recovery.Step("tell notices", func() { n.tell(g) })
	n.recovery.Step("find what is left to do", func() { n.noteSteady(g) })
}

// findForPass finds what no event has reported about a group. It reads files of cgroups only, unless a container may use an undeclared
// disk, so its calls are not bounded.
func (n *Node) findForPass(ctx context.Context, g groupIdentity) {
	n.recovery.Step("find running containers", func() { n.findRunning(g) })
	n.recovery.Step("find removed pods", func() { n.findRemovedPods(g) })
	n.recovery.Step("find data left to write", func() { n.findClean(ctx, g) })
	n.recovery.Step("find undeclared disks", func() {
		undeclared := n.undeclared(n.shared.Load())
		undeclared.find(ctx, g, undeclared.suspectsOf(g))
	})
	n.recovery.Step("find lent disks that were removed", func() { n.dropLent(g) })
}

// staysSteady reports whether nothing was left to do for a group, and nothing has changed since. In most passes that holds for nearly all
// groups, and ends the turn.
func (n *Node) staysSteady(ctx context.Context, t *turn) bool {
	undeclared := n.undeclared(n.shared.Load())
	targets, suspects, unread := n.takeSteady(t, undeclared.sharedReads)
	for ; unread != ""; targets, suspects, unread = n.takeSteady(t, undeclared.sharedReads) {
		undeclared.counters.Read(unread)
	}
	if len(suspects) > 0 {
		undeclared.find(ctx, t.groupIdentity, suspects)
		t.began = time.Now()
		targets, _, _ = n.takeSteady(t, nil)
	}
	if targets == nil {
		return false
	}
	defer n.release(t.groupIdentity)
	compare := enforce.Enforcer{Cgroups: n.cgroups}
	return compare.IsUnchanged(targets, make([]byte, 0, 4096))
}

// takeSteady takes the right to write a group's cgroups and returns its plan, if nothing else is to be done for the group. If the use
// of undeclared disks by containers may have changed, it returns them instead, or the cgroup whose counters have to be read to know that, unless shared is nil.
func (n *Node) takeSteady(t *turn, shared *sharedReads) (_ *enforce.Targets, suspects []containerRef, unread string) {
	pol, now := n.policy.Load(), n.layers.Current()
	s := n.state.Lock()
	defer n.state.Unlock()
	g := t.in(s)
	if !g.isPlanned(pol, now) || g.retry.err != nil || !t.began.Before(g.told.Next) {
		return nil, nil, ""
	}
	if shared != nil {
		suspects, unread = shared.suspects(g.plan.covering)
	}
	if len(suspects) > 0 || unread != "" || !g.token.TryTake() {
		return nil, suspects, unread
	}
	return g.plan.Targets, nil, ""
}

// noteSteady notes whether nothing is left to do for a group. Each change of what that depends on drops the plan.
func (n *Node) noteSteady(of groupIdentity) {
	pol, now := n.policy.Load(), n.layers.Current()
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	if g.plan == nil {
		return
	}
	g.plan.policy = nil
	if s.isSteady(g) && g.isResolved(pol, now) {
		g.plan.policy, g.plan.layers, g.plan.covering = pol, now, g.covering()
	}
}

// isSteady reports whether a pass can find nothing about a group but that its cgroups have changed, or that containers use undeclared
// disks: a container runs, so the pod's cgroup exists, no process can be new, and no limit stays for data that is left to write.
func (s *state) isSteady(g *group) bool {
	runs := false
	for _, p := range g.pods {
		l, _ := s.liveOf(p.uid, p.namespace, p.name)
		if l.owner.IsPod || len(p.borrowed().Disks) > 0 {
			return false // what is lent may have changed
		}
		if _, hasEdit := p.editNow(); hasEdit {
			return false
		}
		for _, c := range p.containers {
			if c.life.Phase().MayHaveStarted() && c.cgroup != "" || c.mayRun() && !p.isComplete() {
				return false
			}
			runs = runs || c.mayRun()
		}
	}
	_, waits := g.drain.Ask()
	return runs && !waits
}

// findRunning finds containers that have a process although no event reported their start. The runtime sent the
// event before the plugin connected, or before the container had its cgroup.
func (n *Node) findRunning(g groupIdentity) {
	for _, c := range n.mayHaveStarted(g) {
		// The next pass repeats a read that failed.
		if populated, err := n.cgroups.Cgroup(c.cgroup).Populated(); err == nil && populated {
			n.noteRunning(c)
		}
	}
}

// mayHaveStarted returns the containers of a group that have no process as far as the plugin knows.
func (n *Node) mayHaveStarted(g groupIdentity) (out []identity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, c := range g.in(s).all() {
		if c.life.Phase().MayHaveStarted() && c.cgroup != "" {
			out = append(out, c.identity)
		}
	}
	return out
}

// noteRunning notes that a container has a process, and drops the plan of its group.
func (n *Node) noteRunning(c identity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	s.handle(c.in(s), lifecycle.CgroupPopulated)
	s.changed(c.pod.group.in(s))
}

// reconcileGroup returns no error: a failure is logged, recorded on the cgroup, and retried with the next pass.
// Resolving a container can hang. So it runs apart from the writes, and keeps no limit of the pod from being
// written.
func (n *Node) reconcileGroup(ctx context.Context, g groupIdentity) {
	resolved := n.inFlight.passes.For(ctx, g.key+" resolve", resolveDeadline, func(ctx context.Context) error {
		return errors.Join(n.resolveAll(ctx, g)...)
	})
	written := n.inFlight.passes.For(ctx, g.key, passDeadline, func(context.Context) error {
		if err := g.takeNow(); err != nil {
			return err
		}
		defer n.release(g)
		return n.write(g, "")
	})
	waits := errors.Is(written, errWritten)
	if waits {
		written = nil
	}
	err := errors.Join(resolved, written)
	n.noteProblem(ctx, g, err)
	n.retryLater(g, err != nil, waits)
}

// retryLater has the reconciler retry a group after a failure, and with a late container. The pause grows with each failure in a row. Once
// it reaches that between two passes over the node, the next pass is the retry. A group whose writer is at work is no failure: the
// writer may not know all that was decided, so the group is written again when the writer is done (release), or soon.
func (n *Node) retryLater(of groupIdentity, failed, waits bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	if waits {
		s.reconcileAt(g, time.Now().Add(firstPause))
	}
	if !failed && !g.hasLate() {
		g.retry.pause = 0
		return
	}
	if g.retry.pause = min(max(2*g.retry.pause, firstPause), n.resync); g.retry.pause < n.resync {
		s.reconcileAt(g, time.Now().Add(g.retry.pause))
	}
}

// noteProblem notes the error that keeps limits of a group from being in force, nil if they are. Each event of the pod and each pass
// finds the same error.
func (n *Node) noteProblem(ctx context.Context, of groupIdentity, err error) {
	if ctx.Err() != nil {
		return
	}
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	if err != nil || g.retry.err != nil {
		g.retry.err = err
		g.told.Look()
	}
}

// noteComplete notes which pods of a group are complete, in a pass.
func (n *Node) noteComplete(of groupIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	for _, pod := range g.pods {
		ready := false
		for _, c := range pod.containers {
			if c.decision.policy == nil {
				ready = false // a target may be for this container
				break
			}
			ready = ready || c.mayRun()
		}
		if ready && !pod.isComplete() {
			pod.complete = pod.request.now.Load()
			s.changed(g)
		}
	}
}

// markAllDue has the reconciler compare all groups, as a pass that began at some time. It returns the groups whose worker hangs, and an
// error of reading records since the last pass.
func (n *Node) markAllDue(began time.Time) (hung []groupIdentity, unreadable error) {
	s := n.state.Lock()
	defer n.state.Unlock()
	now := time.Now()
	s.queue.BeginPass(began)
	for _, g := range s.groups {
		if len(g.pods) == 0 || g.concern == unrecorded {
			continue
		}
		if s.queue.AddToPass(&g.entry, now); g.entry.HasWorker() && g.writeHangs() {
			hung = append(hung, g.identity())
		}
	}
	unreadable, s.unreadable = s.unreadable, nil
	return hung, unreadable
}

// turn is a group that a worker has taken from the queue.
type turn struct {
	groupIdentity
	inPass  bool
	began   time.Time
	concern concern
}

// nextTurn takes a group that is due from the queue, unless ctx has ended.
func (n *Node) nextTurn(ctx context.Context) (_ turn, ok bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	now := time.Now()
	due := s.queue.First(now)
	if due == nil || ctx.Err() != nil {
		return turn{}, false
	}
	g := due.Of.in(s)
	s.reviseDelayed(g, func() time.Time { return now })
	t := turn{due.Of, s.queue.Take(due, now), now, g.concern}
	if g.concern == unread {
		g.concern = unreadable // until it is read
	}
	return t, true
}

// nextDue returns when the next group is due.
func (n *Node) nextDue() (at time.Time, waits bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	return s.queue.Next()
}

// endTurn puts a group back into the queue, where it waits if it is due again.
func (n *Node) endTurn(of groupIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	s.queue.Done(&g.entry)
	s.reviseDelayed(g, time.Now)
	n.countPass(s)
}
