package plugin

import (
	"cmp"
	"slices"

	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
)

// listedPod is a pod with annotations of ours that the runtime lists.
type listedPod struct {
	pod    *pod
	cgroup string
}

// synchronize brings the state into line with what the runtime says is there,
// and has the reconciler do the same for the cgroups. It looks at nothing on
// the node and parses no value of an annotation: the runtime waits.
func (p *Plugin) synchronize(sandboxes []*api.PodSandbox, ctrs []*api.Container) {
	listed := map[string]listedPod{}
	for _, sb := range sandboxes {
		if pod, cgroup := p.parsePod(sb); pod != nil {
			listed[pod.id] = listedPod{pod, cgroup}
		}
	}

	p.takeOver(listed, ctrs)
	p.unsynced.Store(false)
	p.log.WithFields(logrus.Fields{"pods": len(sandboxes), "limited": len(listed)}).Info("Synchronized with the runtime")
}

// takeOver makes the pods with annotations that the runtime lists, and their
// containers, the node's state.
func (p *Plugin) takeOver(listed map[string]listedPod, ctrs []*api.Container) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, l := range listed { // first: a new sandbox finds the group of the old one
		if p.pods[id] == nil {
			p.join(l.pod, l.cgroup)
		}
	}
	for id, pod := range p.pods {
		if _, ok := listed[id]; !ok {
			p.leave(pod, lifecycle.NotListed)
		}
	}
	p.adopt(ctrs)
	for _, g := range p.groups {
		p.markDirty(g)
	}
}

// byAge sorts those that run behind those that do not: of the containers of one name
// the last one counts.
func byAge(a, b *api.Container) int {
	if a, b := runs(a), runs(b); a != b {
		if b {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt())
}

func runs(ctr *api.Container) bool {
	state := ctr.GetState()
	return state == api.ContainerState_CONTAINER_RUNNING || state == api.ContainerState_CONTAINER_PAUSED
}

// adoptOne takes over one container of a pod. The caller holds mu.
func (p *Plugin) adoptOne(pod *pod, ctr *api.Container) {
	c := pod.containers[ctr.GetId()]
	if c == nil {
		c = p.add(pod, ctr)
	}
	switch {
	case runs(ctr):
		c.pid = int(ctr.GetPid())
		p.handle(c, lifecycle.ListedRunning)
	case ctr.GetState() == api.ContainerState_CONTAINER_CREATED:
		p.handle(c, lifecycle.ListedCreated)
	default:
		p.handle(c, lifecycle.ListedStopped)
	}
}

// adopt takes over containers that were there before us, and forgets those
// that have gone. One that we know keeps what we know of it. Those that have
// ended count as seen: which targets have no container is found by them. The
// caller holds mu.
func (p *Plugin) adopt(ctrs []*api.Container) {
	listed := make(map[string]bool, len(ctrs))
	for _, ctr := range slices.SortedStableFunc(slices.Values(ctrs), byAge) {
		listed[ctr.GetId()] = true
		if pod := p.pods[ctr.GetPodSandboxId()]; pod != nil {
			p.adoptOne(pod, ctr)
		}
	}
	for _, pod := range p.pods {
		for id, c := range pod.containers {
			if !listed[id] {
				p.handle(c, lifecycle.NotListed)
			}
		}
	}
}
