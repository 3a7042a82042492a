package plugin

import (
	"maps"

	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
)

// findGone forgets the pods of which nothing runs and whose cgroup was removed. A restarted
// containerd sends no RemovePodSandbox for the pods of before, and so each restart would
// leave the plugin with the pods that ran then (docs/reference/quirks.md).
func (p *Plugin) findGone(groups []*group) {
	for _, g := range groups {
		if changes, idle := p.isIdle(g); idle && !p.cgroups.Cgroup(g.cgroup).Exists() {
			p.forgetGone(g, changes)
		}
	}
}

// isIdle reports whether no container of a group runs, with its number of changes.
func (p *Plugin) isIdle(g *group) (changes int, idle bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
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
func (p *Plugin) forgetGone(g *group, changes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.changes != changes {
		return
	}
	for pod := range maps.Values(maps.Clone(g.pods)) {
		p.log.WithField("pod", pod.String()).Info("Forgetting a pod whose cgroup was removed without an event")
		p.leave(pod, lifecycle.RemovePodSandbox)
	}
}
