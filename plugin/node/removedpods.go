package node

import (
	"maps"

	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
)

// findRemovedPods forgets the pods without a running container and without a cgroup. A restarted containerd sends no
// RemovePodSandbox for pods from before its restart. Without findRemovedPods, the plugin would keep them after each
// restart (docs/reference/quirks.md).
func (n *Node) findRemovedPods(g groupIdentity) {
	if changes, idle := n.isIdle(g); idle && !n.cgroups.Cgroup(g.cgroup).Exists() {
		for _, pod := range n.forgetRemovedPods(g, changes) {
			n.log.WithField("pod", pod).Info("Forgetting a pod whose cgroup was removed without an event")
		}
	}
}

// isIdle reports whether no container of a group runs that something concerns, and returns its number of changes.
func (n *Node) isIdle(of groupIdentity) (changes int, idle bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	for _, pod := range g.pods {
		for _, c := range pod.containers {
			if c.mayRun() && s.concerns(g) { // nothing compares the others with their cgroups
				return 0, false
			}
		}
	}
	return g.changes, g.cgroup != "" && len(g.pods) > 0
}

// forgetRemovedPods forgets the pods of a group that has not changed since it was found idle, and returns their names.
func (n *Node) forgetRemovedPods(of groupIdentity, changes int) (names []string) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	if g.changes != changes {
		return nil
	}
	for pod := range maps.Values(maps.Clone(g.pods)) {
		names = append(names, pod.String())
		s.leave(pod, lifecycle.RemovePodSandbox)
	}
	return names
}
