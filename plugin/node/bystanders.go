package node

import (
	"cmp"
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
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// A bystander is a pod without annotations of this domain, without a class by a rule, and without a budget for its
// namespace. A later policy may have one for it. The runtime lists the running containers only to a plugin that
// registers. A registration waits for each stop of a container that is under way, and blocks all other events
// meanwhile. So bystanders are part of the state as all pods are. Only nothing of them is decided or compared.

// Enter makes the pod of a container's event part of the state, and reports whether something concerns the pod. Of a bystander it notes the
// container. It reads nothing of the node.
func (n *Node) Enter(sb *Sandbox, ctr *Container, now State) (isConcerned bool) {
	pod, isConcerned := n.enter(sb)
	return isConcerned || n.passBy(pod, ctr, now)
}

// enter makes a sandbox part of the state, and reports whether something concerns its pod.
func (n *Node) enter(sb *Sandbox) (pod podIdentity, isConcerned bool) {
	pol := n.policy.Load()
	if pod, isConcerned = n.podOf(sb.ID); isConcerned || !pod.isNone() && !n.concerns(sb, pol) {
		return pod, isConcerned
	}
	pod, isConcerned = n.join(n.parse(sb, pol), n.isListed.Load())
	if !isConcerned && (n.policy.Load() != pol || n.isLive(sb)) { // what came into force before the pod was here did not find it
		return n.enter(sb)
	}
	return pod, isConcerned
}

// parse returns a sandbox with whether something concerns it under a policy. It leaves the values of the annotations unparsed: a tenant
// decides how long parsing takes, and Synchronize enters all pods of the node within one answer.
func (n *Node) parse(sb *Sandbox, pol *policy.Policy) reported {
	pod, isCut := newPod(sb, pol)
	out := reported{podIdentity: pod, isConcerned: n.concerns(sb, pol)}
	if isCut {
		n.log.WithField("pod", pod.String()).Warn("Some labels of a pod are not kept, because they are too long: a new policy can miss them")
	}
	var err error
	if out.cgroup, err = cgroupfs.PodCgroup(sb.Cgroup); err != nil && out.isConcerned {
		n.log.WithError(err).WithField("pod", pod.String()).Error("Pod totals and backstop are unavailable for this pod")
	}
	return out
}

// podOf returns the pod of a sandbox, and none if the sandbox is not part of the state.
func (n *Node) podOf(sandbox string) (_ podIdentity, isConcerned bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	if p := s.pods[sandbox]; p != nil {
		return p.podIdentity, p.group.in(s).isConcerned()
	}
	return podIdentity{}, false
}

// join makes a pod part of the state. If the runtime has listed its pods, an unknown sandbox is a new one.
func (n *Node) join(r reported, isListed bool) (_ podIdentity, isConcerned bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	p := s.enter(r, isListed)
	s.inheritNamespace(p)
	s.revise(p)
	return p.podIdentity, p.group.in(s).isConcerned()
}

// enter makes a pod part of the state, or updates what is known of a bystander.
func (s *state) enter(r reported, isNew bool) *pod {
	p := s.pods[r.id]
	if p == nil {
		p = s.join(r)
		p.isNew = isNew
	} else if !p.group.in(s).isConcerned() {
		p.request.now.Store(r.request.now.Load()) // with labels that were not kept
	}
	if r.isConcerned {
		s.concern(p.group.in(s))
	}
	return p
}

// passBy notes a container of a bystander. It returns true if something concerns the pod since.
func (n *Node) passBy(of podIdentity, ctr *Container, now State) (isConcerned bool) {
	cut := ctr.within(bystanderRoom)
	s := n.state.Lock()
	defer n.state.Unlock()
	p, g := of.in(s), of.group.in(s)
	if s.pods[of.id] != p || g.isConcerned() {
		return g.isConcerned()
	}
	if now == Created {
		s.forgetFailed(p, ctr)
	}
	c := p.container(ctr.ID)
	if c == nil {
		c = s.addReported(p, &cut)
	}
	if now == Running {
		c.pid = ctr.PID
		s.handle(c, lifecycle.StartContainer)
	} else {
		s.handle(c, lifecycle.CreateContainer)
	}
	if len(c.spec.Own) > 0 {
		g.concern = unread
	}
	s.markDirty(g)
	return false
}

// within returns a container with no more mounts than those that fit into room.
func (c *Container) within(room int) Container {
	out, spec := *c, c.Spec()
	spec.Reduce(room)
	out.Spec = func() *inventory.Spec { return spec }
	return out
}

// concerns reports whether something concerns a sandbox: annotations of this domain, a class by a rule of the policy, a budget for its
// namespace, or what the API server knows about its pod. Each event of a container asks.
func (n *Node) concerns(sb *Sandbox, pol *policy.Policy) bool {
	if annotation.Concerns(sb.Annotations) || pol.ConcernsUnannotated() &&
		pol.Concerns(&policy.PodFacts{Namespace: sb.Namespace, Labels: sb.Labels, QOS: podfacts.QOSOf(sb.Cgroup), Handler: sb.Handler}) {
		return true
	}
	if !n.isLive(sb) { // as most pods without the cluster part
		return false
	}
	r, _ := sb.request(pol)
	return n.concernsNow(r, sb.UID, sb.Name)
}

// isLive reports whether the API server knows something about the pod of a sandbox.
func (n *Node) isLive(sb *Sandbox) bool {
	s := n.state.Lock()
	defer n.state.Unlock()
	_, known := s.liveOf(sb.UID, sb.Namespace, sb.Name)
	return known
}

// concernsNow reports whether something concerns a pod by a request, with all that the API server knows. A pod that another pod controls may
// lend.
func (n *Node) concernsNow(r *podfacts.Request, uid, name string) bool {
	now, l := n.withLive(r, uid, name)
	return l.owner.IsPod || len(now.Annotations) > 0 || n.policy.Load().Concerns(&now.PodFacts)
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
	if !p.group.in(s).isConcerned() { // what is left out fits once the container is created again under a policy that concerns it
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

// concern has the reconciler limit pods that were bystanders.
func (s *state) concern(g *group) {
	if g.isConcerned() {
		return
	}
	recorded := g.concern != unrecorded // or maybe, before it is read
	if g.concern = concerned; !recorded {
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
	s.concern(g)
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
	for _, p := range s.pods {
		if !p.group.in(s).isConcerned() {
			out = append(out, p.podIdentity)
		}
	}
	return out
}

// The pod of a bystander can have limits from an earlier process whose policy had a class for the pod. The
// plugin finds them by the records on the cgroups, and by the marks of the containers. A container that has not
// started under that process has no record. Most pods never had any limit, so no event waits for such a read.

// findRecord reads whether the cgroup of bystanders has a record of the pod, or of a container.
func (n *Node) findRecord(g groupIdentity) {
	if g.cgroup == "" { // each pod with a record has a cgroup
		n.noteRead(g, false, nil)
		return
	}
	cg := n.cgroups.Cgroup(g.cgroup)
	pod, err := cg.ReadXattr(record.Xattr)
	containers, unlisted := cg.ListAbove(record.Xattr)
	if err = cmp.Or(err, unlisted); errors.Is(err, blkio.ErrGone) || errors.Is(err, blkio.ErrNotSupported) { // the kernel does not support them, so there are no records
		err = nil
	}
	n.noteRead(g, pod != nil || len(containers) > 0, err)
}

// noteRead notes whether bystanders have a record, or the OCI spec of a container has limits of an earlier process. Then the next turn
// removes these limits.
func (n *Node) noteRead(of groupIdentity, recorded bool, err error) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	for _, c := range g.all() {
		recorded = recorded || len(c.spec.Own) > 0
	}
	switch {
	case recorded:
		s.concern(g)
	case g.isConcerned():
	case err != nil:
		s.unreadable = err
	case g.concern == unreadable:
		g.concern = unrecorded
	}
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
	if !p.group.in(s).isConcerned() {
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
