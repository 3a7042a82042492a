package node

import (
	"cmp"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
)

// listedPod is a pod with annotations of ours, or a class, that the runtime lists.
type listedPod struct {
	pod    podIdentity
	cgroup string
}

// Synchronize brings the state into line with what the runtime says is there,
// and has the reconciler do the same for the cgroups. It looks at nothing on
// the node and parses no value of an annotation: the runtime waits.
func (n *Node) Synchronize(sandboxes []*Sandbox, ctrs []*Container) {
	listed := n.listed(sandboxes)
	n.pods.takeOver(listed, listedBystanders(n.policy.Load(), listed, sandboxes, ctrs), sandboxes, ctrs)
	n.admitBystanders() // a policy that came meanwhile did not find them
	n.listing.unlikely.Store(false)
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

// takeOver makes the pods with annotations that the runtime lists, the others, and their
// containers the node's state.
func (t *podTable) takeOver(listed map[string]listedPod, others map[string]*bystander, sandboxes []*Sandbox, ctrs []*Container) {
	s := t.state.Lock()
	defer t.state.Unlock()
	for id, l := range listed { // first: a new sandbox finds the group of the old one
		if s.pods[id] == nil {
			s.join(l.pod, l.cgroup)
		}
	}
	there := make(map[string]bool, len(sandboxes))
	for _, sb := range sandboxes {
		there[sb.ID] = true
	}
	for id, pod := range s.pods {
		if !there[id] { // not by listed: a new policy may have admitted a bystander since
			s.leave(pod, lifecycle.NotListed)
		}
	}
	s.adopt(ctrs)
	s.keepBystanders(others)
	for _, g := range s.groups {
		s.markDirty(g)
	}
}

// byAge sorts those that run behind those that do not: of the containers of one name
// the last one counts.
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
		told := newContainer(pod.podIdentity, ctr)
		c = s.add(&told)
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

// adopt takes over containers that were there before us, and forgets those
// that have gone. One that we know keeps what we know of it. Those that have
// ended count as seen: which targets have no container is found by them.
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
