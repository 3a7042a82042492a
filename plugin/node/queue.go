package node

import (
	"cmp"
	"slices"
	"time"
)

// queue orders the groups that the reconciler has to work on by the times from which on they are due. A change makes a group due at
// once, a retry or a paced edit later, and a pass makes all of them due. A worker needs a place to take a group. It gives the place
// back with the group, or earlier if the work takes long: then a disk that does not answer delays no group but its own. No two
// workers have the same group.
//
// A queue has neither a clock nor a lock.
type queue struct {
	waiting []*group // in the order of byDue
	places  int      // free
	added   int      // number of calls of add that had an effect
	pass    queuePass
}

// queuePass is the pass over all groups that is under way.
type queuePass struct {
	began time.Time // zero without a pass
	left  int       // groups of the pass that are not done
}

// entry is the part of a group that its queue uses.
type entry struct {
	due    time.Time // zero if nothing is to be done, apart from what the worker does
	added  int       // queue.added at that time
	worker workerState
	// inPass is true if the pass waits for a worker to take the group, and takenInPass if it waits for the worker that has it.
	inPass, takenInPass bool
}

// workerState describes the worker of a group.
type workerState int

const (
	noWorker        workerState = iota
	workerWithPlace             // the worker has the place that it needed to take the group
	workerWithoutPlace
)

func newQueue(places int) queue { return queue{places: places} }

// add makes a group due at some time, unless it is due earlier. If a worker has the group, another one takes it afterwards.
func (q *queue) add(g *group, at time.Time) {
	e := &g.entry
	if !e.due.IsZero() && !at.Before(e.due) {
		return
	}
	q.remove(g)
	q.added++
	if e.due, e.added = at, q.added; e.worker == noWorker {
		q.insert(g)
	}
}

// beginPass begins a pass. One that is under way goes on with the groups of the new one.
func (q *queue) beginPass(now time.Time) {
	if q.pass.began.IsZero() {
		q.pass.began = now
	}
}

// addToPass makes a group due as a part of the pass.
func (q *queue) addToPass(g *group, now time.Time) {
	q.add(g, now)
	if !g.entry.inPass {
		g.entry.inPass = true
		q.pass.left++
	}
}

// hasten makes a group due now that waits for a later time, and reports whether it does wait.
func (q *queue) hasten(g *group, now time.Time) bool {
	if !g.entry.due.After(now) {
		return false
	}
	q.add(g, now)
	return true
}

// first returns the group that is due first, and nil if none is due or no place is free.
func (q *queue) first(now time.Time) *group {
	if q.places == 0 || len(q.waiting) == 0 || q.waiting[0].entry.due.After(now) {
		return nil
	}
	return q.waiting[0]
}

// take gives a group that waits to a worker, and reports whether it is due as part of a pass.
func (q *queue) take(g *group) (inPass bool) {
	q.remove(g)
	q.places--
	inPass = g.entry.inPass
	g.entry = entry{worker: workerWithPlace, takenInPass: inPass}
	return inPass
}

// giveBack gives the place of a group's worker to another worker.
func (q *queue) giveBack(g *group) {
	if g.entry.worker == workerWithPlace {
		g.entry.worker = workerWithoutPlace
		q.places++
	}
}

// done takes a group back from its worker.
func (q *queue) done(g *group) {
	q.giveBack(g)
	e := &g.entry
	e.worker = noWorker
	if !e.due.IsZero() {
		q.insert(g)
	}
	if e.takenInPass {
		e.takenInPass = false
		q.pass.left--
	}
}

// drop has no other worker take a group.
func (q *queue) drop(g *group) {
	q.remove(g)
	e := &g.entry
	if e.inPass {
		q.pass.left--
	}
	*e = entry{worker: e.worker, takenInPass: e.takenInPass}
}

// next returns the time at which a group will be due, and false if none waits for a time or for the place that it needs.
func (q *queue) next() (time.Time, bool) {
	if q.places == 0 || len(q.waiting) == 0 {
		return time.Time{}, false
	}
	return q.waiting[0].entry.due, true
}

// endPass returns when the pass began, if all of its groups are done.
func (q *queue) endPass() (began time.Time, ended bool) {
	began = q.pass.began
	if began.IsZero() || q.pass.left > 0 {
		return time.Time{}, false
	}
	q.pass.began = time.Time{}
	return began, true
}

// insert has a group wait at its place in the order.
func (q *queue) insert(g *group) {
	at, _ := slices.BinarySearchFunc(q.waiting, g, byDue)
	q.waiting = slices.Insert(q.waiting, at, g)
}

// remove is the inverse of insert.
func (q *queue) remove(g *group) {
	if at, found := slices.BinarySearchFunc(q.waiting, g, byDue); found {
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
}

// byDue compares two groups by the times at which they are due. Of equal ones, the group that was added first comes first.
func byDue(a, b *group) int {
	return cmp.Or(a.entry.due.Compare(b.entry.due), cmp.Compare(a.entry.added, b.entry.added))
}
