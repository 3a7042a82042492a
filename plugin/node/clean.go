package node

import (
	"context"

	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
)

// The limits of a pod stay in force for a container that ended before its data was known to be on disk. Without
// them the kernel would write all of it at once. The container's sync may have failed, or no event reported its
// end in time. The kernel counts the data that is left: the dirty pages of the pod's cgroup, including those of
// removed cgroups below it.

// findClean finds out whether a pod without a running container has nothing left to write, and has its limits
// removed then. The kernel's count may be two seconds old (docs/reference/quirks.md), so two passes in a row have
// to find the same.
func (n *Node) findClean(ctx context.Context, g groupIdentity) {
	question, waits := n.waitsForData(g)
	if !waits {
		return
	}
	left, err := n.cgroups.Cgroup(g.cgroup).ReadUnwritten()
	if n.noteUnwritten(g, question, err == nil && left == 0) { // without the memory controller the limits stay
		go n.exits.writeout.Tidy(ctx, endedPod{n, g})
	}
}

// waitsForData returns the question to the kernel whether a group has data left to write. It returns false
// unless the group is drained once the answer is no.
func (n *Node) waitsForData(g groupIdentity) (lifecycle.Question, bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	question, waits := g.in(s).drain.Ask()
	return question, waits && g.cgroup != ""
}

// noteUnwritten notes the kernel's answer, and reports whether the group is drained by it.
func (n *Node) noteUnwritten(of groupIdentity, q lifecycle.Question, clean bool) bool {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	if !g.drain.Answer(q, clean) {
		return false
	}
	s.markDirty(g)
	return true
}
