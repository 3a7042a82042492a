package node

import (
	"maps"

	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
)

// findGone forgets the pods of which nothing runs and whose cgroup was removed. A restarted
// containerd sends no RemovePodSandbox for the pods of before, and so each restart would
// leave the plugin with the pods that ran then (docs/reference/quirks.md).
func (n *Node) findGone(groups []*group) {
	for _, g := range groups {
		if changes, idle := n.isIdle(g); idle && !n.cgroups.Cgroup(g.cgroup).Exists() {
			n.forgetGone(g, changes)
		}
	}
}

// isIdle reports whether no container of a group runs, with its number of changes.
func (n *Node) isIdle(g *group) (changes int, idle bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, pod := range g.pods {
		for _, c := range pod.containers {
			if c.mayRun() {
				return 0, false
			}
		}
	}
	return g.changes, g.cgroup != "" && len(g.pods) > 0
}

// forgetGone forgets the pods of a group that has had no change since it was found idle.
func (n *Node) forgetGone(g *group, changes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if g.changes != changes {
		return
	}
	for pod := range maps.Values(maps.Clone(g.pods)) {
		n.log.WithField("pod", pod.String()).Info("Forgetting a pod whose cgroup was removed without an event")
		n.leave(pod, lifecycle.RemovePodSandbox)
	}
}
