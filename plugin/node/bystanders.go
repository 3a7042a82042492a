package node

import (
	"cmp"
	"context"
	"errors"
	"math"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/handover"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// A bystander is a pod without annotations of this domain, without a class by a rule, and without a budget for its
// namespace. A later policy may have one for it. The runtime lists the running containers only to a plugin that
// registers. A registration waits for each stop of a container that is under way, and blocks all other events
// meanwhile. So bystanders are part of the state, and only the reconciler passes them by.

// joinBystander makes a pod part of the state that nothing concerns, unless something concerns another sandbox of it.
func (s *state) joinBystander(joining podIdentity, cgroup string) *pod {
	g := s.groups[groupKey(cgroup, joining.id)]
	passes := g == nil || !s.concerns(g)
	p := s.join(joining, cgroup)
	if passes {
		s.unread(p.group.in(s))
	}
	return p
}

// unread has the records of bystanders read.
func (s *state) unread(g *group) {
	s.bystanders[g] = unread
	reminder.Wake(s.wake)
}

// PassBy notes a container of a pod that the policy by does not concern. It returns true if something concerns the pod since. It
// reads nothing of the node.
func (n *Node) PassBy(sb *Sandbox, ctr *Container, now State, by *policy.Policy) (concerned bool) {
	if n.concernsLive(sb) {
		return true
	}
	cut := ctr.within(bystanderRoom)
	concerned, isCut := n.noteBystanding(sb, &cut, now, by)
	if isCut {
		sb.warnCut(n.log)
	}
	// What came into force before this container was noted did not find the pod.
	pol := n.policy.Load()
	return concerned || n.concernsLive(sb) || pol != by && sb.Concerns(pol)
}

// within returns a container with no more mounts than those that fit into room.
func (c *Container) within(room int) Container {
	out, spec := *c, c.Spec()
	spec.Reduce(room)
	out.Spec = func() *inventory.Spec { return spec }
	return out
}

// concernsLive reports whether something concerns a sandbox by what the API server knows about its pod. Nothing is known of most
// pods without the cluster part, and each event of a container asks.
func (n *Node) concernsLive(sb *Sandbox) bool {
	if _, known := n.liveOf(sb.UID, sb.Namespace, sb.Name); !known {
		return false
	}
	r, _ := sb.request(n.policy.Load())
	return n.concernsNow(r, sb.UID, sb.Name)
}

// concernsNow reports whether something concerns a pod by a request, with all that the API server knows. A pod that another pod controls may
// lend.
func (n *Node) concernsNow(r *podfacts.Request, uid, name string) bool {
	if l, _ := n.liveOf(uid, r.Namespace, name); l.owner.IsPod {
		return true
	}
	r = n.withLive(r, uid, name)
	return len(r.Annotations) > 0 || n.policy.Load().Concerns(&r.PodFacts)
}

// noteBystanding notes a container of a bystander, unless something concerns the pod. isCut is true if the pod is new, and labels of it
// were dropped.
func (n *Node) noteBystanding(sb *Sandbox, ctr *Container, now State, by *policy.Policy) (concerned, isCut bool) {
	cgroup, _ := cgroupfs.PodCgroup(sb.Cgroup) // without a cgroup, each sandbox of a pod is on its own
	s := n.state.Lock()
	defer n.state.Unlock()
	if g := s.groups[groupKey(cgroup, sb.ID)]; g != nil && s.concerns(g) {
		return true, false
	}
	p := s.pods[sb.ID]
	if p == nil {
		var fresh podIdentity
		fresh, isCut = newPod(sb, by)
		p = s.joinBystander(fresh, cgroup)
	}
	if now == Created {
		s.forgetFailed(p, ctr)
	}
	c := p.container(ctr.ID)
	if c == nil {
		c = s.addReported(p, ctr)
	}
	if now == Running {
		c.pid = ctr.PID
		s.handle(c, lifecycle.StartContainer)
	} else {
		s.handle(c, lifecycle.CreateContainer)
	}
	if len(c.spec.Own) > 0 {
		s.unread(p.group.in(s))
	}
	return false, isCut
}

// forgetFailed forgets the containers of a bystander in whose place a container is created: the earlier creation has failed, and the
// runtime reported no removal.
func (s *state) forgetFailed(p *pod, by *Container) {
	for _, c := range p.containers {
		if c.id == by.ID || c.name == by.Name && c.life.Phase() == lifecycle.Created {
			s.handle(c, lifecycle.RemoveContainer)
		}
	}
}

// addReported adds a container by a report of the runtime.
func (s *state) addReported(p *pod, ctr *Container) *container {
	room := s.mountRoom(p, ctr.Name)
	if !s.concerns(p.group.in(s)) { // what is left out fits once the container is created again under a policy that concerns it
		cut := ctr.within(room)
		ctr, room = &cut, math.MaxInt
	}
	added := newContainer(p.podIdentity, ctr, room)
	return s.add(&added)
}

// newContainer returns a container with the facts that the runtime reported, without those mounts that do not fit into room.
func newContainer(pod podIdentity, ctr *Container, room int) snapshot {
	c := snapshot{
		identity: identity{id: ctr.ID, name: ctr.Name, pod: pod, memoryLimit: ctr.memoryLimit()},
		pid:      pidUnknown,
		use:      undeclaredUse{seen: unseen},
		decision: undecided,
		disks:    inventory.NewContainerWithin(ctr.Spec(), room),
	}
	c.cgroup, c.search.err = cgroupfs.ContainerCgroup(ctr.Cgroup, pod.group.cgroup)
	c.spec = plan.ReadSpec(ctr.ID, ctr.Mark, ctr.Unified)
	return c
}

// concern has the reconciler limit pods that were bystanders. recorded is true if their cgroups have a record.
func (s *state) concern(g *group, recorded bool) {
	known, passes := s.bystanders[g]
	if !passes {
		return
	}
	delete(s.bystanders, g)
	if recorded = recorded || known != unrecorded; !recorded { // an unread cgroup may have a record
		// No limit has delayed the writes of the pod so far. So its cgroup needs no limit for the data of containers that have ended.
		g.drain.Forget()
	}
	for _, p := range g.pods {
		for _, c := range p.containers {
			if c.exit.plan = nil; !recorded {
				c.exit.plan = &handover.Plan{}
			}
			if !c.mayRun() {
				continue
			}
			if c.vetting, c.use.seen = vetted, uncompared; !recorded {
				g.drain.Begin(c.id)
			}
		}
		if l, known := s.liveOf(p.uid, p.namespace, p.name); known {
			p.request.now.Store(p.request.now.Load().With(l.Request, podfacts.Labels))
		}
		s.revise(p)
	}
	s.markDirty(g)
}

// findConcerned finds those of some bystanders that the policy in force or a live change concerns. former are the labels of their
// namespace before an edit of them, nil if there was none.
func (n *Node) findConcerned(of []podIdentity, former map[string]string) {
	found := false
	for _, p := range of {
		if n.concernsNow(p.request.now.Load(), p.uid, p.name) {
			n.concern(p.group, former)
			found = true
		}
	}
	if found {
		reminder.Wake(n.all) // a container may have started without an event
	}
}

// concern is that of the state, for what findConcerned has found.
func (n *Node) concern(of groupIdentity, former map[string]string) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	s.concern(g, false)
	for p, c := range g.all() {
		if former != nil {
			c.redecide(func(d *decision) { d.request = p.request.now.Load().InNamespace(former, s.namespaceKeys) })
		}
	}
}

// bystanding returns all bystanders.
func (n *Node) bystanding() (out []podIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for g := range s.bystanders {
		for _, p := range g.pods {
			out = append(out, p.podIdentity)
		}
	}
	return out
}

// The pod of a bystander can have limits from an earlier process whose policy had a class for the pod. The
// plugin finds them by the records on the cgroups, and by the marks of the containers. A container that has not
// started under that process has no record. Most pods never had any limit, so no event waits for such a read.

// readBystanders reads the records of bystanders up to a reading, with a deadline.
func (n *Node) readBystanders(ctx context.Context, upTo reading) error {
	of := n.takeUnread(upTo)
	if len(of) == 0 {
		return nil
	}
	return n.inFlight.passes.For(ctx, "bystanders", passDeadline, func(ctx context.Context) error { return n.findRecorded(ctx, of) })
}

// findRecorded has something concern those bystanders whose cgroups have a record. The next pass removes
// their limits.
func (n *Node) findRecorded(ctx context.Context, of []groupIdentity) error {
	var failed error
	for _, g := range of {
		found, err := n.hasRecord(g)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, blkio.ErrGone) || errors.Is(err, blkio.ErrNotSupported) { // the kernel does not support them, so there are no records
			err = nil
		}
		if n.noteRead(g, found, err) {
			failed = cmp.Or(failed, err)
		}
	}
	return failed
}

// hasRecord reports whether the cgroup of a pod has a record of the pod, or of a container.
func (n *Node) hasRecord(g groupIdentity) (bool, error) {
	if g.cgroup == "" {
		return false, nil // each pod with a record has a cgroup
	}
	cg := n.cgroups.Cgroup(g.cgroup)
	pod, err := cg.ReadXattr(record.Xattr)
	if pod != nil {
		return true, nil
	}
	containers, unlisted := cg.ListAbove(record.Xattr)
	return len(containers) > 0, cmp.Or(err, unlisted)
}

// noteRead notes whether bystanders have a record, or the OCI spec of a container has limits of an earlier process. It reports whether
// that is still unknown because of an error.
func (n *Node) noteRead(of groupIdentity, recorded bool, err error) (unknown bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	for _, c := range g.all() {
		recorded = recorded || len(c.spec.Own) > 0
	}
	switch {
	case recorded:
		s.concern(g, true)
	case err != nil:
		return !s.concerns(g)
	case s.bystanders[g] == unreadable:
		s.bystanders[g] = unrecorded
	}
	return false
}

// takeUnread returns the bystanders up to a reading. Until they are read they count as unreadable.
func (n *Node) takeUnread(upTo reading) (out []groupIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for g, known := range s.bystanders {
		if known <= upTo {
			s.bystanders[g] = unreadable
			out = append(out, g.identity())
		}
	}
	return out
}

// A tenant decides how many mounts a pod has. The API server bounds only the size of the pod, which has room for some
// 80,000 of them, and the memory of the plugin is that of all tenants.

// mountRoom is the memory in bytes that the mounts of the containers of a pod take at most in their OCI specs. It is
// enough for about 4,000 mounts. What the plugin finds about them takes about twice as much again.
const mountRoom = 1 << 20

// bystanderRoom is the memory in bytes that the mounts of a bystander take at most beside its labels. A tenant decides how many
// there are. It is enough for about 30 containers with 15 mounts.
const bystanderRoom = 96 << 10

// mountRoom returns the bytes that are left for the mounts of a container of a pod, by its name. An earlier container of the name does
// not count, because this one replaces it.
func (s *state) mountRoom(p *pod, name string) int {
	room := mountRoom
	if !s.concerns(p.group.in(s)) {
		room = bystanderRoom
	}
	for other, known := range p.known {
		if other != name {
			room -= known.size
		}
	}
	unknown := map[string]*container{} // the newest of each name: the runtime also lists those that have ended
	for _, c := range p.containers {
		if _, known := p.known[c.name]; !known && c.name != name && (unknown[c.name] == nil || unknown[c.name].arrival < c.arrival) {
			unknown[c.name] = c
		}
	}
	for _, c := range unknown {
		room -= c.disks.Size
	}
	return max(0, room)
}

func (n *Node) mountRoom(of podIdentity, name string) int {
	s := n.state.Lock()
	defer n.state.Unlock()
	return s.mountRoom(of.in(s), name)
}
