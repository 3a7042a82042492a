package node

import (
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/node/guard"
)

// podTable is the state of the pods with its lock. Its methods hold the lock for a short time: they
// neither log, nor read or write anything on the node.
type podTable struct{ state *guard.Value[state] }

func newPodTable(wake chan<- struct{}) podTable {
	return podTable{guard.New(state{
		pods: map[string]*pod{}, groups: map[string]*group{}, dirty: map[*group]bool{}, wake: wake,
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

// take waits for the right to write a group's cgroups. It returns false if done is closed first.
func (t *podTable) take(g groupIdentity, done <-chan struct{}) bool {
	select {
	case g.token <- struct{}{}:
	case <-done:
		return false
	}
	s := t.state.Lock()
	defer t.state.Unlock()
	g.in(s).writer.since = time.Now()
	return true
}

// tryTake takes the right to write a group's cgroups without waiting for it. If it fails, the holder of the
// token wakes the reconciler when it releases the token.
func (t *podTable) tryTake(g groupIdentity) bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	writer := &g.in(s).writer
	select {
	case g.token <- struct{}{}:
		writer.since = time.Now()
		return true
	default:
	}
	writer.missed = true
	return false
}

// writeHangs reports whether a write to the group's cgroups takes too long.
func (t *podTable) writeHangs(g groupIdentity) bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	since := g.in(s).writer.since
	return !since.IsZero() && time.Since(since) > passDeadline
}

// release gives the token back. It does so under the lock, so that it does not overwrite what the next writer notes.
func (t *podTable) release(of groupIdentity) {
	s := t.state.Lock()
	defer t.state.Unlock()
	<-of.token // does not block, because the caller holds the token
	g := of.in(s)
	g.writer.since = time.Time{}
	s.drop(g)
	if g.writer.missed && len(g.pods) > 0 {
		s.markDirty(g)
	}
	g.writer.missed = false
}
