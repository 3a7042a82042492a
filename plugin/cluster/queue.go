package cluster

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// The author of a pod decides how often it changes. So a number of changes of a pod are written at once, and then one in each
// interval: the newest one. Other pods do not wait for them.
const (
	changesAtOnce  = 10 // with what becomes known of a new pod
	changeInterval = time.Second
)

// queue has the UIDs of the pods whose documents may have to change.
type queue struct {
	wake chan struct{} // has one slot

	mu   sync.Mutex // guards the fields below
	uids map[string]bool
	paid map[string]time.Time // the changes of a pod so far take changeInterval each, until then
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), uids: map[string]bool{}, paid: map[string]time.Time{}}
}

func (q *queue) add(uid string) {
	q.put(uid)
	reminder.Wake(q.wake)
}

// put adds a UID without waking the loop.
func (q *queue) put(uid string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.uids[uid] = true
}

// take takes the UIDs that are due, sorted. The others become due at next, which is zero if there are none.
func (q *queue) take(now time.Time) (uids []string, next time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.paid, func(_ string, until time.Time) bool { return !until.After(now) })
	for _, uid := range slices.Sorted(maps.Keys(q.uids)) {
		until, isPaced := q.paid[uid]
		if !isPaced {
			until = now
		}
		if due := until.Add(-(changesAtOnce - 1) * changeInterval); due.After(now) {
			if next.IsZero() || due.Before(next) {
				next = due
			}
			continue
		}
		delete(q.uids, uid)
		q.paid[uid] = until.Add(changeInterval)
		uids = append(uids, uid)
	}
	return uids, next
}
