package cluster

import (
	"maps"
	"slices"
	"sync"

	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// queue has the UIDs of the pods whose documents may have to change.
type queue struct {
	wake chan struct{} // has one slot

	mu   sync.Mutex // guards the field below
	uids map[string]bool
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1), uids: map[string]bool{}} }

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

// take returns the UIDs, sorted, and empties the queue.
func (q *queue) take() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := slices.Sorted(maps.Keys(q.uids))
	clear(q.uids)
	return out
}
