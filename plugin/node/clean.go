package node

import (
	"context"

	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
)

// A container that ended before its data was known to be on disk leaves the pod's limits
// in force: without them it would all be written at once. Its sync may have failed, or no
// event reported its end in time. What is left to write, the kernel itself counts: the
// pages of the pod's cgroup, with those of the cgroups that were removed below it.

// findClean looks whether a pod of which nothing runs any more has nothing left to write, and
// lets its limits go. The kernel's count may be two seconds old
// (docs/reference/quirks.md), so that two passes in a row have to find it.
func (n *Node) findClean(ctx context.Context, g groupIdentity) {
	question, waits := n.pods.waitsForData(g)
	if !waits {
		return
	}
	left, err := n.cgroups.Cgroup(g.cgroup).ReadUnwritten()
	if n.pods.noteUnwritten(g, question, err == nil && left == 0) { // without the memory controller the limits stay
		go n.exits.writeout.Tidy(ctx, endedPod{n.applier(), g})
	}
}

// waitsForData returns the question to the kernel whether a group has data left to write,
// and false unless only the answer keeps the group from being drained.
func (t *podTable) waitsForData(g groupIdentity) (lifecycle.Question, bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	question, waits := g.in(s).drain.Ask()
	return question, waits && g.cgroup != ""
}

// noteUnwritten notes the kernel's answer, and reports whether the group is drained by it.
func (t *podTable) noteUnwritten(of groupIdentity, q lifecycle.Question, clean bool) bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	g := of.in(s)
	if !g.drain.Answer(q, clean) {
		return false
	}
	s.markDirty(g)
	return true
}
