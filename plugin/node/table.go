package node

import (
	"context"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/node/guard"
)

// podTable is the state of the pods with its lock. Its methods hold the lock for a short time: they
// neither log, nor read or write anything on the node.
type podTable struct{ state *guard.Value[state] }

func newPodTable(wake chan<- struct{}) podTable {
	return podTable{guard.New(state{
		pods: map[string]*pod{}, groups: map[string]*group{}, queue: newQueue(maxReconciled, patientFor), wake: wake,
		bystanders: map[string]*bystander{}, unreadBystanders: map[string]bool{}, indexes: newIndexes(), apiServer: apiServer{live: map[string]Live{}},
	})}
}

// markDirty has the reconciler compare a group.
func (t *podTable) markDirty(g groupIdentity) {
	s := t.state.Lock()
	defer t.state.Unlock()
	s.markDirty(g.in(s))
}

// markAllDirty has the reconciler compare all groups.
func (t *podTable) markAllDirty() {
	s := t.state.Lock()
	defer t.state.Unlock()
	for _, g := range s.groups {
		s.markDirty(g)
	}
}

// markAllDue has the reconciler compare all groups, as a pass that began at some time. It returns the groups whose worker hangs.
func (t *podTable) markAllDue(began time.Time) (hung []groupIdentity) {
	s := t.state.Lock()
	defer t.state.Unlock()
	now := time.Now()
	s.queue.beginPass(began)
	for _, g := range s.groups {
		if len(g.pods) == 0 {
			continue
		}
		if s.queue.addToPass(&g.entry, now); g.entry.worker != noWorker && g.writeHangs(now) {
			hung = append(hung, g.groupIdentity)
		}
	}
	return hung
}

// endPass returns when a pass began that has ended.
func (t *podTable) endPass() (began time.Time, ended bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	return s.queue.endPass()
}

// nextTurn takes a group that is due from the queue, unless ctx has ended.
func (t *podTable) nextTurn(ctx context.Context) (_ turn, ok bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	now := time.Now()
	due := s.queue.first(now)
	if due == nil || ctx.Err() != nil {
		return turn{}, false
	}
	s.reviseDelayed(due.of.in(s), now)
	return turn{due.of, s.queue.take(due, now)}, true
}

// nextDue returns when the next group is due.
func (t *podTable) nextDue() (at time.Time, waits bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	return s.queue.next()
}

// endTurn puts a group back into the queue, where it waits if it is due again.
func (t *podTable) endTurn(of groupIdentity) {
	s := t.state.Lock()
	defer t.state.Unlock()
	g := of.in(s)
	s.queue.done(&g.entry)
	s.reviseDelayed(g, time.Now())
}

// wakeUp wakes the reconciler.
func (t *podTable) wakeUp() {
	s := t.state.Lock()
	defer t.state.Unlock()
	s.wakeUp()
}

// take waits for the right to write a group's cgroups. It returns false if done is closed first.
func (t *podTable) take(g groupIdentity, done <-chan struct{}) bool {
	select {
	case g.token <- struct{}{}:
	case <-done:
		return false
	}
	s := t.state.Lock()
	defer t.state.Unlock()
	g.in(s).writing = time.Now()
	return true
}

// tryTake takes the right to write a group's cgroups without waiting for it.
func (t *podTable) tryTake(g groupIdentity) bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	return s.tryTake(g.in(s))
}

func (s *state) tryTake(g *group) bool {
	select {
	case g.token <- struct{}{}:
		g.writing = time.Now()
		return true
	default:
		return false
	}
}

// writeHangs reports whether a write to the group's cgroups takes too long.
func (t *podTable) writeHangs(g groupIdentity) bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	return g.in(s).writeHangs(time.Now())
}

func (g *group) writeHangs(now time.Time) bool {
	return !g.writing.IsZero() && now.Sub(g.writing) > passDeadline
}

// release gives the token back. It does so under the lock, so that it does not overwrite what the next writer notes. The
// reconciler may wait for the token until a retry.
func (t *podTable) release(of groupIdentity) {
	s := t.state.Lock()
	defer t.state.Unlock()
	<-of.token // does not block, because the caller holds the token
	g := of.in(s)
	g.writing = time.Time{}
	s.drop(g)
	if s.queue.hasten(&g.entry, time.Now()) {
		s.wakeUp()
	}
}
