package node

import (
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
)

// A bystander is a pod without annotations of this domain, without a class by a rule, and without a budget for its
// namespace. A later policy may have one for it. The runtime lists the running containers only to a plugin that
// registers. A registration waits for each stop of a container that is under way, and blocks all other events
// meanwhile. So the node keeps the facts that the events report about bystanders.

// bystander is the sandbox of a bystander, with the facts that the node keeps about it.
type bystander struct {
	sandbox    Sandbox          // without annotations; it does not change
	isCut      bool             // some labels were dropped
	size       int              // size of the labels, in bytes
	containers []*bystandingCtr // in the order of their first reports
	ended      bool             // one of its containers has ended
}

// bystandingCtr is a container of a bystander that has not ended.
type bystandingCtr struct {
	*Container
	starts bool // true after StartContainer; false if a list has reported it since
	size   int  // in bytes
}

// A tenant decides how many labels, containers and mounts a pod has.
const (
	// bystanderRoom is the memory in bytes that a bystander takes at most, apart from containerSize and the
	// names of each container. It is enough for 30 containers with 15 mounts.
	bystanderRoom = 128 << 10
	// containerSize is the memory in bytes that a container takes without its text.
	containerSize = 384
	// longestFile is the length of the longest text that the kernel takes for a control file.
	longestFile = 4096
)

// newBystander returns a bystander with those facts of a sandbox that a policy may depend on.
func newBystander(sb *Sandbox, pol *policy.Policy) *bystander {
	b := &bystander{sandbox: *sb}
	b.sandbox.Annotations = nil
	b.sandbox.Labels, b.size, b.isCut = keptLabels(sb.Labels, pol)
	return b
}

// newBystandingCtr returns a container of a bystander with the facts that are kept about it. They take at most
// room bytes, apart from the memory that each container takes.
func newBystandingCtr(ctr *Container, now State, room int) *bystandingCtr {
	kept := *ctr
	kept.State, kept.Unified = now, nil
	if len(kept.Mark) > plan.MaxMark { // a tenant's text
		kept.Mark = ""
	}
	out := &bystandingCtr{Container: &kept, starts: now == Running, size: containerSize + len(kept.Mark) + len(ctr.ID) + len(ctr.Name) + len(ctr.Cgroup)}
	for _, file := range []string{blkio.IOMax, blkio.IOWeight, "memory.high"} {
		text, found := ctr.Unified[file]
		if !found || len(text) > longestFile {
			continue
		}
		if kept.Unified == nil {
			kept.Unified = map[string]string{}
		}
		kept.Unified[file] = text
		out.size += len(text)
	}
	spec, size := ctr.Spec().Within(max(0, room-out.size))
	kept.Spec = func() *inventory.Spec { return spec }
	out.size += size
	return out
}

// room returns the bytes that are left for a container. It does not count an earlier report about the same
// container.
func (b *bystander) room(id string) int {
	room := bystanderRoom - b.size
	for _, c := range b.containers {
		if c.ID != id {
			room -= c.size
		}
	}
	return room
}

// note keeps a report about a container, and drops an earlier report about it.
func (b *bystander) note(c *bystandingCtr) {
	b.forget(c.ID)
	b.containers = append(b.containers, c)
}

func (b *bystander) forget(id string) {
	b.containers = slices.DeleteFunc(b.containers, func(c *bystandingCtr) bool { return c.ID == id })
}

// forgetFailed forgets the containers of a name that were not started. It is called when a container with this
// name is created again: the earlier creation has failed, and the runtime reported no removal.
func (b *bystander) forgetFailed(name string) {
	b.containers = slices.DeleteFunc(b.containers, func(c *bystandingCtr) bool { return c.State == Created && c.Name == name })
}

// forgetBystanding forgets a container of a bystander that has ended.
func (s *state) forgetBystanding(sandbox, id string) {
	if b := s.bystanders[sandbox]; b != nil {
		b.forget(id)
		b.ended = true
	}
}

// addBystander adds a bystander to the state. The reconciler reads whether its pod has a record.
func (s *state) addBystander(b *bystander) {
	s.forgetBystander(b.sandbox.ID)
	s.bystanders[b.sandbox.ID] = b
	s.bystandersByUID.add(b.sandbox.UID, b)
	s.bystandersIn.add(b.sandbox.Namespace, b)
	s.unreadBystanders[b.sandbox.ID] = true
	s.wake.send()
}

// forgetBystander removes a bystander from the state.
func (s *state) forgetBystander(id string) {
	if b := s.bystanders[id]; b != nil {
		s.bystandersByUID.remove(b.sandbox.UID, b)
		s.bystandersIn.remove(b.sandbox.Namespace, b)
	}
	delete(s.bystanders, id)
	delete(s.unreadBystanders, id)
}

// PassBy notes a container of a pod that the policy by does not concern. It returns true if the pod has become
// part of the state since, or the policy in force concerns it. It reads nothing of the node.
func (n *Node) PassBy(sb *Sandbox, ctr *Container, now State, by *policy.Policy) (concerned bool) {
	if n.concernsLive(sb) {
		return true
	}
	b := newBystander(sb, by)
	if n.keepBystanding(b, newBystandingCtr(ctr, now, n.bystanderRoom(b, ctr.ID))) {
		return true
	}
	// What came into force before this container was noted did not find the pod.
	facts, pol := sb.Facts(), n.policy.Load()
	return n.concernsLive(sb) || pol != by && pol.Concerns(&facts)
}

// bystanderRoom returns the bytes that are left for a container of a bystander. It does not count an earlier
// report about the same container.
func (n *Node) bystanderRoom(b *bystander, id string) int {
	s := n.state.Lock()
	defer n.state.Unlock()
	if known := s.bystanders[b.sandbox.ID]; known != nil {
		b = known
	}
	return b.room(id)
}

// keepBystanding notes a container of a bystander, unless its pod is part of the state.
func (n *Node) keepBystanding(b *bystander, c *bystandingCtr) (known bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	if s.pods[b.sandbox.ID] != nil {
		return true
	}
	if known := s.bystanders[b.sandbox.ID]; known != nil {
		b = known
	} else {
		s.addBystander(b)
	}
	if c.State == Created {
		b.forgetFailed(c.Name)
	}
	b.note(c)
	if c.hasOwnSpec() {
		s.unreadBystanders[b.sandbox.ID] = true
		s.wake.send()
	}
	return false
}

// listedBystanders returns the listed sandboxes that the policy does not concern, with their containers.
func listedBystanders(pol *policy.Policy, concerned map[string]listedPod, sandboxes []*Sandbox, ctrs []*Container) map[string]*bystander {
	out := map[string]*bystander{}
	for _, sb := range sandboxes {
		if _, found := concerned[sb.ID]; !found {
			out[sb.ID] = newBystander(sb, pol)
		}
	}
	for _, ctr := range ctrs {
		switch b := out[ctr.Sandbox]; {
		case b == nil:
		case ctr.State == Stopped:
			b.ended = true
		default:
			c := newBystandingCtr(ctr, ctr.State, b.room(ctr.ID))
			c.starts = false
			b.note(c)
		}
	}
	return out
}

// keepBystanders replaces the bystanders by the listed ones that are not part of the state.
func (s *state) keepBystanders(listed map[string]*bystander) {
	for id := range s.bystanders {
		s.forgetBystander(id)
	}
	for id, b := range listed {
		if s.pods[id] == nil {
			s.addBystander(b)
		}
	}
}

// admitBystanders makes those bystanders part of the state that the policy in force or a live change concerns.
func (n *Node) admitBystanders() {
	pol := n.policy.Load()
	if !pol.ConcernsUnannotated() && !n.hasLive() {
		return
	}
	n.admitBystandersIf(n.bystanding(), false, func(sb *Sandbox) bool {
		facts := sb.Facts()
		return pol.Concerns(&facts) || n.concernsLive(sb)
	})
}

// admitBystandersIf makes those of some bystanders part of the state that are concerned by their labels as they are now. moved is
// true if the reason is an edit of the labels of their namespace.
func (n *Node) admitBystandersIf(of []Sandbox, moved bool, concerned func(*Sandbox) bool) {
	admits := false
	for _, sb := range of {
		if live, known := n.liveOf(&sb); known {
			sb.Labels = live.labels(sb.Labels)
		}
		if concerned(&sb) {
			pod, cgroup := n.describePod(&sb)
			if n.admitBystander(pod, cgroup, false); moved {
				n.noteMoved(pod)
			}
			admits = true
		}
	}
	if admits {
		n.all.send() // a container may have started without an event
	}
}

// bystanding returns the sandboxes of all bystanders.
func (n *Node) bystanding() (out []Sandbox) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, b := range s.bystanders {
		out = append(out, b.sandbox)
	}
	return out
}

// admitBystander makes a bystander part of the state, unless it was removed meanwhile. recorded is true if the
// cgroups of the pod have a record.
func (n *Node) admitBystander(fresh podIdentity, cgroup string, recorded bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	b := s.bystanders[fresh.id]
	if b == nil {
		return
	}
	_, unread := s.unreadBystanders[fresh.id]
	recorded = recorded || unread // an unread cgroup may have a record
	pod := s.join(fresh, cgroup)
	if now := fresh.request.now.Load(); !maps.Equal(now.facts.Labels, b.sandbox.Labels) {
		fresh.request.now.Store(now.withLabels(now.facts.Labels)) // for the record
	}
	s.admit(pod)
	if recorded && b.ended { // its limits may delay data that is not on the disk yet
		pod.group.in(s).drain.EndUnseen()
	}
	for _, c := range pod.containers {
		// Without a record, no limit has delayed the writes of the pod so far. So its cgroup needs no limit for
		// the data of a container that ended unseen.
		c.exit.planned = !recorded
	}
	s.revise(pod)
}

// noteMoved notes that an edit of its namespace's labels made a pod part of the state.
func (n *Node) noteMoved(pod podIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	if p := s.pods[pod.id]; p != nil {
		p.isMoved = true
	}
}

// admit adds the containers of a bystander to its pod, which has become part of the state.
func (s *state) admit(pod *pod) {
	b := s.bystanders[pod.id]
	if b == nil {
		return
	}
	s.forgetBystander(pod.id)
	slices.SortStableFunc(b.containers, func(a, b *bystandingCtr) int { return byAge(a.Container, b.Container) })
	for _, ctr := range b.containers {
		if !ctr.starts {
			s.adoptOne(pod, ctr.Container)
			continue
		}
		added := newContainer(pod.podIdentity, ctr.Container, pod.mountRoom(ctr.Name))
		c := s.add(&added)
		c.pid, c.use.pending, c.vetted = ctr.PID, true, true
		s.handle(c, lifecycle.StartContainer) // like a container restored from a checkpoint, it may have no process yet
	}
	s.markDirty(pod.group.in(s))
}
