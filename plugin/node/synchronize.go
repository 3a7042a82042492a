package node

import (
	"cmp"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
)

// listedPod is a pod in the list of the runtime that has annotations of this domain, or a class.
type listedPod struct {
	pod    podIdentity
	cgroup string
}

// Synchronize takes over the pods and containers that the runtime lists, and has the reconciler update the
// cgroups. It reads nothing of the node and parses no value of an annotation, because the runtime waits.
func (n *Node) Synchronize(sandboxes []*Sandbox, ctrs []*Container) {
	listed := n.listed(sandboxes)
	n.takeOver(listed, listedBystanders(n.policy.Load(), listed, sandboxes, ctrs), sandboxes, ctrs)
	n.admitBystanders() // a policy that came into force meanwhile did not find them
	n.listing.done.Store(true)
	n.log.WithFields(logrus.Fields{"pods": len(sandboxes), "limited": len(listed)}).Info("Synchronized with the runtime")
}

// listed returns those sandboxes that are known or that concern the plugin.
func (n *Node) listed(sandboxes []*Sandbox) map[string]listedPod {
	out := map[string]listedPod{}
	for _, sb := range sandboxes {
		if pod, cgroup, concerned := n.parsePod(sb); concerned {
			out[pod.id] = listedPod{pod, cgroup}
		}
	}
	return out
}

// takeOver takes over the listed pods of the state (listed), the bystanders (others), and their containers.
func (n *Node) takeOver(listed map[string]listedPod, others map[string]*bystander, sandboxes []*Sandbox, ctrs []*Container) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for id, l := range listed { // before leave, so that a new sandbox finds the group of the old one
		if s.pods[id] == nil {
			s.join(l.pod, l.cgroup)
		}
	}
	there := make(map[string]bool, len(sandboxes))
	for _, sb := range sandboxes {
		there[sb.ID] = true
	}
	for id, pod := range s.pods {
		if !there[id] { // listed would miss a bystander that a new policy has admitted since
			s.leave(pod, lifecycle.NotListed)
		}
	}
	s.adopt(ctrs)
	s.reviseAll()
	s.keepBystanders(others)
	for _, g := range s.groups {
		s.markDirty(g)
	}
}

// byAge sorts containers by their creation, the running ones last: of the containers of one name the last one
// counts.
func byAge(a, b *Container) int {
	if a, b := a.State == Running, b.State == Running; a != b {
		if b {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.CreatedAt, b.CreatedAt)
}

// adoptOne takes over one container of a pod.
func (s *state) adoptOne(pod *pod, ctr *Container) {
	c := pod.containers[ctr.ID]
	if c == nil {
		added := newContainer(pod.podIdentity, ctr, pod.mountRoom(ctr.Name))
		added.vetted = ctr.State == Running
		c = s.add(&added)
	}
	switch ctr.State {
	case Running:
		c.pid = ctr.PID
		s.handle(c, lifecycle.ListedRunning)
	case Created:
		s.handle(c, lifecycle.ListedCreated)
	case Stopped:
		s.handle(c, lifecycle.ListedStopped)
	}
}

// adopt takes over the containers in the list, and forgets the others. A known container keeps its facts. Ended
// containers count as seen, because targets without a container are found by them.
func (s *state) adopt(ctrs []*Container) {
	listed := make(map[string]bool, len(ctrs))
	for _, ctr := range slices.SortedStableFunc(slices.Values(ctrs), byAge) {
		listed[ctr.ID] = true
		if pod := s.pods[ctr.Sandbox]; pod != nil {
			s.adoptOne(pod, ctr)
		}
	}
	for _, pod := range s.pods {
		for id, c := range pod.containers {
			if !listed[id] {
				s.handle(c, lifecycle.NotListed)
			}
		}
	}
}
