package node

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
)

// This file takes over the pods that the runtime lists, forgets those whose removal it does not report, and finds those that it did not
// list.

// Synchronize takes over the pods and containers that the runtime lists, and has the reconciler update the
// cgroups. It reads nothing of the node and parses no value of an annotation, because the runtime waits.
func (n *Node) Synchronize(sandboxes []*Sandbox, ctrs []*Container) {
	listed := make(map[string]reported, len(sandboxes))
	for _, sb := range sandboxes {
		listed[sb.ID] = n.parse(sb, n.policy.Load())
	}
	limited := n.takeOver(listed, ctrs)
	n.findConcerned(n.bystanding(), nil) // a policy that came into force meanwhile did not find them
	n.isListed.Store(true)
	n.log.WithFields(logrus.Fields{"pods": len(sandboxes), "limited": limited}).Info("Synchronized with the runtime")
}

// takeOver takes over the listed pods with their containers, and forgets the others. It returns how many are no bystanders.
func (n *Node) takeOver(listed map[string]reported, ctrs []*Container) (limited int) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, g := range s.groups {
		if !g.isConcerned() {
			g.concern = unread // another process may have had a policy for it meanwhile
		}
	}
	for _, r := range listed { // before leave, so that a new sandbox finds the group of the old one
		s.enter(r, false)
	}
	for id, pod := range s.pods {
		if _, there := listed[id]; !there {
			s.leave(pod, lifecycle.NotListed)
		}
	}
	s.adopt(ctrs)
	s.reviseAll()
	for _, g := range s.groups {
		if s.markDirty(g); g.isConcerned() {
			limited++
		}
	}
	return limited
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
	c := pod.container(ctr.ID)
	if c == nil {
		c = s.addReported(pod, ctr)
		if ctr.State == Running {
			c.vetting = vetted
		}
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
	for _, c := range s.all() {
		if !listed[c.id] {
			s.handle(c, lifecycle.NotListed)
		}
	}
}

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
	for _, c := range g.all() {
		if c.mayRun() && g.isConcerned() { // nothing compares the others with their cgroups
			return 0, false
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
	for _, pod := range g.pods {
		names = append(names, pod.String())
		s.leave(pod, lifecycle.RemovePodSandbox)
	}
	return names
}

// Listing compares the pods that the kubelet runs with those that the runtime has listed, or reported since.
type Listing struct {
	Listed   int      // running pods that are known, by bystanders too
	Unlisted []string // UIDs of the other running pods, in a fixed order
}

// CompareListed reads which pods run below the cgroup of the kubelet's pods. The runtime reports a container before it runs, so a pod
// with a container that runs is known if the runtime is that of the kubelet.
func (n *Node) CompareListed() (Listing, error) {
	running, err := n.cgroups.RunningPods()
	if err != nil {
		return Listing{}, err
	}
	return n.listing(running), nil
}

func (n *Node) listing(running []cgroupfs.Cgroup) (out Listing) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, c := range running {
		uid := strings.ReplaceAll(cgroupfs.PodUID(c.Path()), "_", "-") // no UID of the kubelet has a "_"
		if s.groups[groupKey(c.Path(), "")] != nil || s.byUID[uid] != nil {
			out.Listed++
		} else {
			out.Unlisted = append(out.Unlisted, uid)
		}
	}
	return out
}

// findRemovedBystanders forgets the bystanders without a cgroup, and what was written to cgroups that were removed.
func (n *Node) findRemovedBystanders() {
	for _, p := range n.bystanding() {
		n.findRemovedPods(p.group)
	}
	for _, cgroup := range n.leftWritten() {
		if !n.cgroups.Cgroup(cgroup).Exists() {
			n.forgetWritten(cgroup)
		}
	}
}

// leftWritten returns the cgroups of groups that have left to which this process wrote.
func (n *Node) leftWritten() []string {
	s := n.state.Lock()
	defer n.state.Unlock()
	return slices.Collect(maps.Keys(s.written))
}

func (n *Node) forgetWritten(cgroup string) {
	s := n.state.Lock()
	defer n.state.Unlock()
	delete(s.written, cgroup)
}
