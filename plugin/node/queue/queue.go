// Package queue orders what workers have to do, by the times from which on it is due.
package queue

import (
	"cmp"
	"slices"
	"time"
)

// Queue orders the groups that the reconciler has to work on by the times from which on they are due. A change makes a group due at
// once, a retry or a paced edit later, and a pass makes all of them due. A group takes a place while a worker has it, and no two
// workers have the same group. A worker that takes longer than patience goes on without the place, so that a disk that does not
// answer delays no group but its own.
//
// A queue has neither a clock nor a lock.
type Queue[V any] struct {
	waiting  []*Entry[V] // in the order of byDue
	placed   []*Entry[V] // those that take a place, in the order in which they were taken
	places   int
	patience time.Duration
	added    int // number of calls of Add that had an effect
	pass     pass
}

// pass is the pass over all groups that is under way.
type pass struct {
	began time.Time // zero without a pass
	left  int       // groups of the pass that are not done
}

// Entry is the part of a group that its queue uses.
type Entry[V any] struct {
	Of     V         // the group
	due    time.Time // zero if nothing is to be done, apart from what a worker does
	added  int       // Queue.added at that time
	inPass bool      // the pass waits until a worker has taken the group, and is done
	worker worker
	taken  time.Time // when the worker took the group
}

// HasWorker reports whether a worker has the group.
func (e *Entry[V]) HasWorker() bool { return e.worker != noWorker }

// IsDue reports whether something is to be done for the group, now or later.
func (e *Entry[V]) IsDue() bool { return !e.due.IsZero() }

// worker describes the worker of a group.
type worker int

const (
	noWorker worker = iota
	working
	workingForPass // the pass waits for the worker
)

// New returns a queue without groups.
func New[V any](places int, patience time.Duration) Queue[V] {
	return Queue[V]{places: places, patience: patience}
}

// Add makes a group due at some time, unless it is due earlier. If a worker has the group, another one takes it afterwards.
func (q *Queue[V]) Add(e *Entry[V], at time.Time) {
	if !e.due.IsZero() && !at.Before(e.due) {
		return
	}
	q.remove(e)
	q.added++
	if e.due, e.added = at, q.added; e.worker == noWorker {
		q.insert(e)
	}
}

// BeginPass begins a pass. One that is under way goes on with the groups of the new one.
func (q *Queue[V]) BeginPass(now time.Time) {
	if q.pass.began.IsZero() {
		q.pass.began = now
	}
}

// AddToPass makes a group due as a part of the pass.
func (q *Queue[V]) AddToPass(e *Entry[V], now time.Time) {
	q.Add(e, now)
	if !e.inPass {
		e.inPass = true
		q.pass.left++
	}
}

// Hasten makes a group due now that waits for a later time, and reports whether there was such a time.
func (q *Queue[V]) Hasten(e *Entry[V], now time.Time) bool {
	if !e.due.After(now) {
		return false
	}
	q.Add(e, now)
	return true
}

// First returns the group that is due first, and nil if none is due or no place is free.
func (q *Queue[V]) First(now time.Time) *Entry[V] {
	for len(q.placed) > 0 && !now.Before(q.placed[0].taken.Add(q.patience)) {
		q.placed = slices.Delete(q.placed, 0, 1)
	}
	if len(q.placed) == q.places || len(q.waiting) == 0 || q.waiting[0].due.After(now) {
		return nil
	}
	return q.waiting[0]
}

// Next returns the time from which on First can return a group, and false if that takes a change of the queue.
func (q *Queue[V]) Next() (at time.Time, waits bool) {
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

// Take gives a group that waits to a worker, and reports whether it is due as a part of the pass.
func (q *Queue[V]) Take(e *Entry[V], now time.Time) (inPass bool) {
	q.remove(e)
	q.placed = append(q.placed, e)
	inPass = e.inPass
	*e = Entry[V]{Of: e.Of, worker: working, taken: now}
	if inPass {
		e.worker = workingForPass
	}
	return inPass
}

// Done takes a group back from its worker.
func (q *Queue[V]) Done(e *Entry[V]) {
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

// Drop has no other worker take a group.
func (q *Queue[V]) Drop(e *Entry[V]) {
	q.remove(e)
	if e.inPass {
		q.pass.left--
	}
	e.due, e.inPass = time.Time{}, false
}

// EndPass returns when the pass began, if all of its groups are done.
func (q *Queue[V]) EndPass() (began time.Time, ended bool) {
	if began = q.pass.began; began.IsZero() || q.pass.left > 0 {
		return time.Time{}, false
	}
	q.pass.began = time.Time{}
	return began, true
}

// insert has a group wait at its place in the order.
func (q *Queue[V]) insert(e *Entry[V]) {
	at, _ := slices.BinarySearchFunc(q.waiting, e, byDue[V])
	q.waiting = slices.Insert(q.waiting, at, e)
}

// remove is the inverse of insert. It does nothing if the group does not wait.
func (q *Queue[V]) remove(e *Entry[V]) {
	switch at, found := slices.BinarySearchFunc(q.waiting, e, byDue[V]); {
	case !found:
	case at == 0: // mostly it is so, and a pass takes all groups one by one
		q.waiting[0], q.waiting = nil, q.waiting[1:]
	default:
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
}

// byDue compares two groups by the times at which they are due. Of equal ones, the group that was added first comes first.
func byDue[V any](a, b *Entry[V]) int {
	return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.added, b.added))
}
