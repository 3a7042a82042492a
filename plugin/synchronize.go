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
func (n *Plugin) synchronize(sandboxes []*api.PodSandbox, ctrs []*api.Container) {
	listed := map[string]listedPod{}
	for _, sb := range sandboxes {
		if pod, cgroup := n.parsePod(sb); pod != nil {
			listed[pod.id] = listedPod{pod, cgroup}
		}
	}

	n.takeOver(listed, ctrs)
	n.unsynced.Store(false)
	n.log.WithFields(logrus.Fields{"pods": len(sandboxes), "limited": len(listed)}).Info("Synchronized with the runtime")
}

// takeOver makes the pods with annotations that the runtime lists, and their
// containers, the node's state.
func (n *Plugin) takeOver(listed map[string]listedPod, ctrs []*api.Container) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, l := range listed { // first: a new sandbox finds the group of the old one
		if n.pods[id] == nil {
			n.join(l.pod, l.cgroup)
		}
	}
	for id, pod := range n.pods {
		if _, ok := listed[id]; !ok {
			n.leave(pod, lifecycle.NotListed)
		}
	}
	n.adopt(ctrs)
	for _, g := range n.groups {
		n.markDirty(g)
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
func (n *Plugin) adoptOne(pod *pod, ctr *api.Container) {
	c := pod.containers[ctr.GetId()]
	if c == nil {
		c = n.add(pod, ctr)
	}
	switch {
	case runs(ctr):
		c.pid = int(ctr.GetPid())
		n.handle(c, lifecycle.ListedRunning)
	case ctr.GetState() == api.ContainerState_CONTAINER_CREATED:
		n.handle(c, lifecycle.ListedCreated)
	default:
		n.handle(c, lifecycle.ListedStopped)
	}
}

// adopt takes over containers that were there before us, and forgets those
// that have gone. One that we know keeps what we know of it. Those that have
// ended count as seen: which targets have no container is found by them. The
// caller holds mu.
func (n *Plugin) adopt(ctrs []*api.Container) {
	listed := make(map[string]bool, len(ctrs))
	for _, ctr := range slices.SortedStableFunc(slices.Values(ctrs), byAge) {
		listed[ctr.GetId()] = true
		if pod := n.pods[ctr.GetPodSandboxId()]; pod != nil {
			n.adoptOne(pod, ctr)
		}
	}
	for _, pod := range n.pods {
		for id, c := range pod.containers {
			if !listed[id] {
				n.handle(c, lifecycle.NotListed)
			}
		}
	}
}
