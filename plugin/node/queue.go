package node

import (
	"context"
	"errors"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
)

// This file has the turns in which workers take groups from the queue, and the right to write a group's cgroups.

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
	s.queue.BeginPass(began)
	for _, g := range s.groups {
		if len(g.pods) == 0 || !s.concerns(g) {
			continue
		}
		if s.queue.AddToPass(&g.entry, now); g.entry.HasWorker() && g.writeHangs(now) {
			hung = append(hung, g.identity())
		}
	}
	return hung
}

// turn is a group that a worker has taken from the queue.
type turn struct {
	groupIdentity
	inPass bool
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
	s.reviseDelayed(due.Of.in(s), now)
	return turn{due.Of, s.queue.Take(due, now)}, true
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
		return cause.ErrWriteHangs
	}
	return errWritten
}

// errWritten is the error of a write to a group that another goroutine is writing. It is retried, and is no problem.
var errWritten = errors.New("another goroutine is writing")

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
	if s.queue.Hasten(&g.entry, time.Now()) {
		s.wake.send()
	}
}
