package node

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// This file has the order in which the reconciler works on groups of pods, and the turns in which its workers take them.

// queue orders the groups that the reconciler has to work on by the times from which on they are due. A change makes a group due at
// once, a retry or a paced edit later, and a pass makes all of them due. A group takes a place while a worker has it, and no two
// workers have the same group. A worker that takes longer than patience goes on without the place, so that a disk that does not
// answer delays no group but its own.
//
// A queue has neither a clock nor a lock.
type queue struct {
	waiting  []*entry // in the order of byDue
	placed   []*entry // those that take a place, in the order in which they were taken
	places   int
	patience time.Duration
	added    int // number of calls of add that had an effect
	pass     queuePass
}

// queuePass is the pass over all groups that is under way.
type queuePass struct {
	began time.Time // zero without a pass
	left  int       // groups of the pass that are not done
}

// entry is the part of a group that its queue uses.
type entry struct {
	of     groupIdentity
	due    time.Time // zero if nothing is to be done, apart from what a worker does
	added  int       // queue.added at that time
	inPass bool      // the pass waits until a worker has taken the group, and is done
	worker worker
	taken  time.Time // when the worker took the group
}

// worker describes the worker of a group.
type worker int

const (
	noWorker worker = iota
	working
	workingForPass // the pass waits for the worker
)

func newQueue(places int, patience time.Duration) queue {
	return queue{places: places, patience: patience}
}

// add makes a group due at some time, unless it is due earlier. If a worker has the group, another one takes it afterwards.
func (q *queue) add(e *entry, at time.Time) {
	if !e.due.IsZero() && !at.Before(e.due) {
		return
	}
	q.remove(e)
	q.added++
	if e.due, e.added = at, q.added; e.worker == noWorker {
		q.insert(e)
	}
}

// beginPass begins a pass. One that is under way goes on with the groups of the new one.
func (q *queue) beginPass(now time.Time) {
	if q.pass.began.IsZero() {
		q.pass.began = now
	}
}

// addToPass makes a group due as a part of the pass.
func (q *queue) addToPass(e *entry, now time.Time) {
	q.add(e, now)
	if !e.inPass {
		e.inPass = true
		q.pass.left++
	}
}

// hasten makes a group due now that waits for a later time, and reports whether there was such a time.
func (q *queue) hasten(e *entry, now time.Time) bool {
	if !e.due.After(now) {
		return false
	}
	q.add(e, now)
	return true
}

// first returns the group that is due first, and nil if none is due or no place is free.
func (q *queue) first(now time.Time) *entry {
	for len(q.placed) > 0 && !now.Before(q.placed[0].taken.Add(q.patience)) {
		q.placed = slices.Delete(q.placed, 0, 1)
	}
	if len(q.placed) == q.places || len(q.waiting) == 0 || q.waiting[0].due.After(now) {
		return nil
	}
	return q.waiting[0]
}

// next returns the time from which on first can return a group, and false if that takes a change of the queue.
func (q *queue) next() (at time.Time, waits bool) {
	if len(q.waiting) == 0 {
		return time.Time{}, false
	}
	at = q.waiting[0].due
	if len(q.placed) == q.places {
		if left := q.placed[0].taken.Add(q.patience); left.After(at) {
			at = left
		}
	}
	return at, true
}

// take gives a group that waits to a worker, and reports whether it is due as a part of the pass.
func (q *queue) take(e *entry, now time.Time) (inPass bool) {
	q.remove(e)
	q.placed = append(q.placed, e)
	inPass = e.inPass
	*e = entry{of: e.of, worker: working, taken: now}
	if inPass {
		e.worker = workingForPass
	}
	return inPass
}

// done takes a group back from its worker.
func (q *queue) done(e *entry) {
	if at := slices.Index(q.placed, e); at >= 0 {
		q.placed = slices.Delete(q.placed, at, at+1)
	}
	if e.worker == workingForPass {
		q.pass.left--
	}
	if e.worker = noWorker; !e.due.IsZero() {
		q.insert(e)
	}
}

// drop has no other worker take a group.
func (q *queue) drop(e *entry) {
	q.remove(e)
	if e.inPass {
		q.pass.left--
	}
	e.due, e.inPass = time.Time{}, false
}

// endPass returns when the pass began, if all of its groups are done.
func (q *queue) endPass() (began time.Time, ended bool) {
	if began = q.pass.began; began.IsZero() || q.pass.left > 0 {
		return time.Time{}, false
	}
	q.pass.began = time.Time{}
	return began, true
}

// insert has a group wait at its place in the order.
func (q *queue) insert(e *entry) {
	at, _ := slices.BinarySearchFunc(q.waiting, e, byDue)
	q.waiting = slices.Insert(q.waiting, at, e)
}

// remove is the inverse of insert. It does nothing if the group does not wait.
func (q *queue) remove(e *entry) {
	switch at, found := slices.BinarySearchFunc(q.waiting, e, byDue); {
	case !found:
	case at == 0: // mostly it is so, and a pass takes all groups one by one
		q.waiting[0], q.waiting = nil, q.waiting[1:]
	default:
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
}

// byDue compares two groups by the times at which they are due. Of equal ones, the group that was added first comes first.
func byDue(a, b *entry) int {
	return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.added, b.added))
}

// markDirty has the reconciler compare a group.
func (n *Node) markDirty(g groupIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	s.markDirty(g.in(s))
}

// markAllDirty has the reconciler compare all groups.
func (n *Node) markAllDirty() {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, g := range s.groups {
		s.markDirty(g)
	}
}

// markAllDue has the reconciler compare all groups, as a pass that began at some time. It returns the groups whose worker hangs.
func (n *Node) markAllDue(began time.Time) (hung []groupIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	now := time.Now()
	s.queue.beginPass(began)
	for _, g := range s.groups {
		if len(g.pods) == 0 || !s.concerns(g) {
			continue
		}
		if s.queue.addToPass(&g.entry, now); g.entry.worker != noWorker && g.writeHangs(now) {
			hung = append(hung, g.groupIdentity)
		}
	}
	return hung
}

// nextTurn takes a group that is due from the queue, unless ctx has ended.
func (n *Node) nextTurn(ctx context.Context) (_ turn, ok bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	now := time.Now()
	due := s.queue.first(now)
	if due == nil || ctx.Err() != nil {
		return turn{}, false
	}
	s.reviseDelayed(due.of.in(s), now)
	return turn{due.of, s.queue.take(due, now)}, true
}

// nextDue returns when the next group is due.
func (n *Node) nextDue() (at time.Time, waits bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	return s.queue.next()
}

// endTurn puts a group back into the queue, where it waits if it is due again.
func (n *Node) endTurn(of groupIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	s.queue.done(&g.entry)
	s.reviseDelayed(g, time.Now())
}

// take waits for the right to write a group's cgroups. It returns false if done is closed first.
func (n *Node) take(g groupIdentity, done <-chan struct{}) bool {
	select {
	case g.token <- struct{}{}:
	case <-done:
		return false
	}
	s := n.state.Lock()
	defer n.state.Unlock()
	g.in(s).writing = time.Now()
	return true
}

// takeNow takes the right to write a group's cgroups, unless another goroutine has it.
func (n *Node) takeNow(of groupIdentity) error {
	s := n.state.Lock()
	defer n.state.Unlock()
	switch g := of.in(s); {
	case s.tryTake(g):
		return nil
	case g.writeHangs(time.Now()):
		return errWriteHangs
	}
	return errWritten
}

// tryTake takes the right to write a group's cgroups without waiting for it.
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
func (g *group) writeHangs(now time.Time) bool {
	return !g.writing.IsZero() && now.Sub(g.writing) > passDeadline
}

// release gives the token back. It does so under the lock, so that it does not overwrite what the next writer notes. The
// reconciler may wait for the token until a retry.
func (n *Node) release(of groupIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	<-of.token // does not block, because the caller holds the token
	g := of.in(s)
	g.writing = time.Time{}
	s.drop(g)
	if s.queue.hasten(&g.entry, time.Now()) {
		s.wake.send()
	}
}
