package node

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// This file takes over the pods that the runtime lists, forgets those whose removal it does not report, and finds those that it did not
// list.

// listedPod is a pod in the list of the runtime.
type listedPod struct {
	pod       podIdentity
	cgroup    string
	concerned bool // it is no bystander
}

// Synchronize takes over the pods and containers that the runtime lists, and has the reconciler update the
// cgroups. It reads nothing of the node and parses no value of an annotation, because the runtime waits.
func (n *Node) Synchronize(sandboxes []*Sandbox, ctrs []*Container) {
	limited := n.takeOver(n.listed(sandboxes), ctrs)
	n.findConcerned(n.bystanding(), nil) // a policy that came into force meanwhile did not find them
	n.isListed.Store(true)
	n.log.WithFields(logrus.Fields{"pods": len(sandboxes), "limited": limited}).Info("Synchronized with the runtime")
}

// listed returns the listed pods by their sandboxes.
func (n *Node) listed(sandboxes []*Sandbox) map[string]listedPod {
	out := make(map[string]listedPod, len(sandboxes))
	for _, sb := range sandboxes {
		pod, cgroup, concerned := n.parsePod(sb)
		out[pod.id] = listedPod{pod, cgroup, concerned}
	}
	return out
}

// takeOver takes over the listed pods with their containers, and forgets the others. It returns how many are no bystanders.
func (n *Node) takeOver(listed map[string]listedPod, ctrs []*Container) (limited int) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for id, l := range listed { // before leave, so that a new sandbox finds the group of the old one
		s.joinListed(s.pods[id], l)
	}
	for id, pod := range s.pods {
		if _, there := listed[id]; !there {
			s.leave(pod, lifecycle.NotListed)
		}
	}
	s.adopt(ctrs)
	s.reviseAll()
	for _, g := range s.groups {
		s.markDirty(g)
	}
	return len(s.groups) - len(s.bystanders)
}

// joinListed makes a listed pod part of the state, unless it is known. The records of a bystander are read again: another process may
// have had a policy for it meanwhile.
func (s *state) joinListed(known *pod, l listedPod) {
	switch {
	case known == nil && l.concerned:
		known = s.join(l.pod, l.cgroup)
	case known == nil:
		known = s.joinBystander(l.pod, l.cgroup)
	case !s.concerns(known.group.in(s)):
		known.request.now.Store(l.pod.request.now.Load()) // with labels that were not kept
		s.unread(known.group.in(s))
	}
	if l.concerned {
		s.concern(known.group.in(s), false)
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
		if c.mayRun() && s.concerns(g) { // nothing compares the others with their cgroups
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

// lookupGuarded returns the pod of a sandbox as lookup does. It turns a panic into an error.
func (n *Node) lookupGuarded(sb *Sandbox) (found podIdentity, err error) {
	err = n.recovery.Guarded(func() error {
		found = n.lookup(sb)
		return nil
	})
	return found, err
}

// lookup returns the pod of a sandbox, and none if the sandbox is of no concern to the plugin.
func (n *Node) lookup(sb *Sandbox) podIdentity {
	if known := n.podOf(sb.ID); !known.isNone() {
		return known
	}
	fresh, cgroup, concerned := n.parsePod(sb)
	if !concerned {
		return podIdentity{}
	}
	return n.enter(fresh, cgroup, n.isListed.Load())
}

// podOf returns the pod of a sandbox, and none if nothing concerns it.
func (n *Node) podOf(sandbox string) podIdentity {
	s := n.state.Lock()
	defer n.state.Unlock()
	if pod := s.pods[sandbox]; pod != nil && s.concerns(pod.group.in(s)) {
		return pod.podIdentity
	}
	return podIdentity{}
}

// enter makes a pod part of the state that something concerns. If the runtime has listed its pods, an unknown sandbox is a new one, of
// which no earlier process has left an edit.
func (n *Node) enter(fresh podIdentity, cgroup string, listed bool) podIdentity {
	s := n.state.Lock()
	defer n.state.Unlock()
	pod := s.pods[fresh.id]
	switch {
	case pod == nil:
		pod = s.join(fresh, cgroup)
		pod.isNew = listed
	case s.concerns(pod.group.in(s)):
		return pod.podIdentity
	default:
		pod.request.now.Store(fresh.request.now.Load()) // with labels that were not kept
	}
	s.inheritNamespace(pod)
	// The record of an earlier sandbox may have the labels of the namespace.
	pod.restored = pod.isNew && pod.request.now.Load().NamespaceLabels.Know(s.namespaceKeys)
	s.concern(pod.group.in(s), false)
	s.revise(pod)
	return pod.podIdentity
}

// parsePod returns the pod of a sandbox. concerned is false if the sandbox has no annotation of this domain, no
// class or budget by the policy, and nothing concerned it before. It leaves the values of the annotations unparsed: a tenant
// decides how long parsing takes, and Synchronize enters all pods of the node within one answer.
func (n *Node) parsePod(sb *Sandbox) (_ podIdentity, cgroup string, concerned bool) {
	pod, isCut := newPod(sb, n.policy.Load())
	concerned = sb.Concerns(n.policy.Load()) || n.Knows(sb.ID, sb.Cgroup) || n.concernsLive(sb)
	if isCut {
		sb.warnCut(n.log)
	}
	cgroup, err := cgroupfs.PodCgroup(sb.Cgroup)
	if err != nil && concerned {
		n.log.WithError(err).WithField("pod", pod.String()).Error("Pod totals and backstop are unavailable for this pod")
	}
	return pod, cgroup, concerned
}

// requestOf returns what is requested for a sandbox by all that is known of it, and whether something concerns it.
func (n *Node) requestOf(sb *Sandbox, pol *policy.Policy) (r *podfacts.Request, concerned bool) {
	if p := n.podOf(sb.ID); p.isNone() {
		r, _ = sb.request(pol)
		r = n.withLive(r, sb.UID, sb.Name)
	} else {
		r = p.request.now.Load()
	}
	return r, annotation.Concerns(sb.Annotations) || pol.Concerns(&r.PodFacts) || n.concernsLive(sb)
}

// Knows reports whether something concerns a sandbox of the state, or another sandbox of the same pod. cgroup is Sandbox.Cgroup.
// A new policy may have no class for such a pod, while its cgroup still has the limit of ended containers. That
// limit is removed once a container without a limit is known. Knows reads nothing of the node.
func (n *Node) Knows(sandbox, cgroup string) bool {
	cgroup, err := cgroupfs.PodCgroup(cgroup)
	if err != nil {
		cgroup = "" // without a cgroup, each sandbox of a pod is on its own
	}
	s := n.state.Lock()
	defer n.state.Unlock()
	g := s.groups[groupKey(cgroup, sandbox)]
	return g != nil && s.concerns(g)
}
