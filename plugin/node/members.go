package node

import (
	"cmp"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/plugin/node/guard"
	"github.com/nri-blkio/nri-blkio/plugin/node/layers"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/node/notice"
	"github.com/nri-blkio/nri-blkio/plugin/node/queue"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file has the changes of the state: what joins it, what leaves it, and what has changed.

func newState(wake chan struct{}) *guard.Value[state] {
	return guard.New(state{
		pods: map[string]*pod{}, groups: map[string]*group{}, queue: queue.New[groupIdentity](maxReconciled, patientFor), wake: wake,
		written: map[string]enforce.Written{}, indexes: newIndexes(), live: map[string]live{},
	})
}

func newGroup(cgroup, key string) *group {
	// One allocation. A group is copied with the lock, and what is written is not, since it is used with the token only.
	made := &struct {
		group
		written enforce.Written
		token   bounded.Token
	}{group: group{groupFacts: groupFacts{cgroup: cgroup, key: key}, recorded: recorded{granted: nothing}}, token: bounded.NewToken()}
	g := &made.group
	g.written, g.token, g.ref = &made.written, &made.token, guard.RefTo[state](g)
	g.entry.Of = g.identity()
	return g
}

// seen returns the facts of the containers created so far, in the order of their names.
func (p *pod) seen() []policy.Container {
	names := make([]string, 0, len(p.known))
	for name := range p.known {
		names = append(names, name)
	}
	slices.Sort(names)
	out := make([]policy.Container, 0, len(names)+1) // with room for one more container
	for _, name := range names {
		out = append(out, p.known[name].facts)
	}
	return out
}

// remember notes the facts of a container, unless a newer container of its name is known.
func (s *state) remember(c *snapshot) {
	if p := c.pod.in(s); c.arrival >= p.known[c.name].arrival {
		facts := c.disks.Facts
		facts.Stage = c.stage()
		p.known[c.name] = knownFacts{facts: facts, size: c.disks.Size, arrival: c.arrival}
		s.recount(p.group.in(s))
	}
}

// container returns a container of the pod by its ID, or nil.
func (p *pod) container(id string) *container {
	if i := slices.IndexFunc(p.containers, func(c *container) bool { return c.id == id }); i >= 0 {
		return p.containers[i]
	}
	return nil
}

// insert adds a container at its place in the order.
func (p *pod) insert(c *container) {
	i, _ := slices.BinarySearchFunc(p.containers, c, func(a, b *container) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
	})
	p.containers = slices.Insert(p.containers, i, c)
}

// remove removes a container. It makes a new list, because a loop over the one before may go on.
func (p *pod) remove(c *container) {
	if i := slices.Index(p.containers, c); i >= 0 {
		p.containers = slices.Concat(p.containers[:i], p.containers[i+1:])
	}
}

// grantedTo returns what was granted to a sandbox as a whole, and nil for nothing. What is carried is of containers of the sandboxes that this process
// found: for another one, it stands where the policy refuses what asks for it.
func (g *group) grantedTo(p *pod) *policy.Desired {
	if len(g.recorded.granted.Settings)+len(g.recorded.granted.Lowered) == 0 { // mostly, for a new pod
		return nil
	}
	if !p.isNew {
		return g.recorded.granted
	}
	out := *g.recorded.granted
	out.Settings, out.Lowered = out.Settings.Uncarried(), out.Lowered.Uncarried()
	return &out
}

// groupKey returns the key of a group in state.groups. A pod without a cgroup gets a key of its own.
func groupKey(cgroup, sandbox string) string {
	if cgroup == "" {
		return "\x00" + sandbox
	}
	return cgroup
}

// join makes a pod part of the node's state.
func (s *state) join(r reported) *pod {
	key := groupKey(r.cgroup, r.id)
	g := s.groups[key]
	if g == nil {
		if g = newGroup(r.cgroup, key); r.isConcerned {
			g.concern = concerned
		}
		*g.written = s.written[r.cgroup]
		delete(s.written, r.cgroup)
		s.groups[key] = g
	}
	p := &pod{podIdentity: r.podIdentity, arrival: s.nextArrival(), joined: time.Now(), known: map[string]knownFacts{}}
	p.ref, p.group = guard.RefTo[state](p), g.identity()
	if lent := s.lentTo(p); len(lent.Disks) > 0 {
		p.lent.Store(new(lent))
	}
	g.pods, s.pods[p.id] = append(g.pods, p), p
	if s.namespaces[p.namespace] == nil {
		s.namespaces[p.namespace] = &namespace{pods: map[string]*pod{}}
	}
	s.namespaces[p.namespace].pods[p.id] = p
	s.byUID.add(p.uid, p)
	s.changed(g)
	for _, lender := range s.lenders(p) { // has it lend what it has lent to an earlier sandbox of the pod
		s.markDirty(lender.group.in(s))
	}
	return p
}

// nextArrival returns the number of a new pod or container.
func (s *state) nextArrival() int {
	s.arrivals++
	return s.arrivals
}

// leave is the inverse of join. It sends the event to the pod's containers, and removes them with the pod,
// because the group may stay for another sandbox.
func (s *state) leave(p *pod, e lifecycle.Event) {
	g, of := p.group.in(s), s.namespaces[p.namespace]
	for _, c := range p.containers {
		s.handle(c, e)
		s.byCgroup.remove(c.cgroup, c)
	}
	delete(s.pods, p.id)
	g.pods = slices.DeleteFunc(slices.Clone(g.pods), func(o *pod) bool { return o == p }) // a loop over those before may go on
	s.byUID.remove(p.uid, p)
	of.sums.Forget(g)
	if delete(of.pods, p.id); len(of.pods) == 0 {
		delete(s.namespaces, p.namespace)
	}
	s.changed(g) // another pod of it may be in the namespace; this also keeps a call that returns late from writing an outdated plan
	if len(g.pods) > 0 {
		s.markDirty(g)
		return
	}
	s.queue.Drop(&g.entry)
	g.concern = concerned
	g.recorded, g.told = recorded{granted: nothing, cleared: g.recorded.cleared}, notice.Ledger[noticeKey]{} // a hand-over may reference the group for hours
	s.drop(g)
}

// drop removes a group without a pod, unless a goroutine writes its cgroups. The pod's next sandbox has to wait
// for that writer, whose values are older.
func (s *state) drop(g *group) {
	if len(g.pods) == 0 && !g.token.IsHeld() && s.groups[g.key] == g {
		delete(s.groups, g.key)
		if left, some := g.written.Left(g.cgroup); some {
			s.written[g.cgroup] = left
		}
	}
}

// changed drops the plan, and what is kept of the group for budgets.
func (s *state) changed(g *group) {
	s.recount(g)
	g.plan = nil
	g.told.Look()
	g.changes++
	g.drain.Change()
}

// markDirty has the reconciler compare a group that may have changed.
func (s *state) markDirty(g *group) {
	s.changed(g)
	s.reconcileAt(g, time.Now())
}

// reconcileAt has the reconciler compare a group at the latest at some time, unless its last pod has left, or nothing concerns it and no record
// is to be read.
func (s *state) reconcileAt(g *group, at time.Time) {
	if len(g.pods) > 0 && (g.isConcerned() || g.concern == unread) {
		s.queue.Add(&g.entry, at)
		reminder.Wake(s.wake)
	}
}

func (x index[V]) add(name string, part V) { x[name] = append(x[name], part) }

// remove removes a part. It does nothing if the index does not have it.
func (x index[V]) remove(name string, part V) {
	i := slices.Index(x[name], part)
	switch {
	case i < 0:
	case len(x[name]) == 1:
		delete(x, name)
	default:
		x[name] = slices.Delete(x[name], i, i+1)
	}
}

func newIndexes() indexes {
	return indexes{namespaces: map[string]*namespace{}, byCgroup: index[*container]{}, byUID: index[*pod]{}, byOwner: index[string]{}}
}

// add makes a container part of its pod, and completes its identity.
func (s *state) add(c *snapshot) *container {
	made := &struct { // one allocation
		container
		token bounded.Token
	}{token: bounded.NewToken()}
	added := &made.container
	c.ref, c.arrival, c.token = guard.RefTo[state](added), s.nextArrival(), &made.token
	added.snapshot = *c
	p := c.pod.in(s)
	p.insert(added)
	s.recount(p.group.in(s))
	if c.cgroup != "" {
		s.byCgroup.add(c.cgroup, added)
	}
	if p.edit.next != nil { // which may have waited for a container
		s.markDirty(p.group.in(s))
	}
	return added
}

func (n *Node) snapshot(of containerRef) snapshot {
	s := n.state.Lock()
	defer n.state.Unlock()
	return of.In(s).snapshot
}

// handle makes the transition of an event of a container, and takes its actions. HandOver is left to the caller
// of WatchFired, which holds the open cgroup. All changes of a container's phase are made here.
func (s *state) handle(c *container, e lifecycle.Event) lifecycle.Actions {
	before := c.life.Phase()
	do, err := c.life.Handle(e)
	if err != nil {
		s.unexpected++
		return 0
	}
	g, now := c.pod.group.in(s), c.life.Phase()
	g.drain.Apply(c.id, do, c.writes())
	if do.Has(lifecycle.FindUndeclared) {
		c.use.seen = uncompared
	}
	if do.Has(lifecycle.RecordExit) && !do.Has(lifecycle.HandOver) {
		s.noteExit(&c.snapshot, false)
	}
	if pod := c.pod.in(s); now == lifecycle.Absent && slices.Contains(pod.containers, c) {
		pod.remove(c)
		s.byCgroup.remove(c.cgroup, c)
	}
	s.recount(g)
	if do != 0 || before != now {
		s.changed(g)
	}
	return do
}

// setLive replaces what the API server knows about a pod; nil forgets it.
func (s *state) setLive(uid string, l *live) {
	if former := s.live[uid].owner; former.IsPod {
		s.byOwner.remove(former.UID, uid)
	}
	if l == nil {
		delete(s.live, uid)
		return
	}
	if s.live[uid] = *l; l.owner.IsPod {
		s.byOwner.add(l.owner.UID, uid)
	}
}

// liveOf returns what the API server knows about a pod. The names are compared as well: a mistake there must not give a
// pod the limits of another tenant.
func (s *state) liveOf(uid, namespace, name string) (_ live, known bool) {
	l, known := s.live[uid]
	if !known || l.Namespace != namespace || l.name != name {
		return live{}, false
	}
	return l, true
}

// remainingLimits returns the limits on writes that a container has now.
func remainingLimits(c *snapshot) policy.Settings {
	out := slices.Clone(c.inForce().Settings.WriteLimits()) // others read those meanwhile
	for i := range out {
		out[i].Source, out[i].Basis = policy.Source{}, policy.Asked // they take room in the record
	}
	return out
}

// noteExit notes the end of a container, once for each of its cgroups. lifted is true if none of its limits are left.
func (s *state) noteExit(c *snapshot, lifted bool) {
	ids := c.exit.cgroupIDs
	c.exit.cgroupIDs = nil
	if ids == nil || c.decision.policy != nil && c.decision.policy.Mode() == policy.ModeObserve {
		return
	}
	e := record.Exit{Container: c.name, CgroupIDs: ids, At: time.Now().UTC().Truncate(time.Second)}
	if !lifted {
		e.Limits = remainingLimits(c)
	}
	g := c.pod.group.in(s)
	g.recorded.exits = record.WithExits(g.recorded.exits, []record.Exit{e})
	s.changed(g)
}

// recount has the budgets of a group's namespaces add it up again. Each change of what share depends on has to call it.
func (s *state) recount(g *group) {
	for _, pod := range g.pods {
		if ns := s.namespaces[pod.namespace]; ns != nil {
			ns.sums.Changed(g)
		}
	}
}

// lendsTo reports whether a pod lends to another one. The author of a pod can name any owner, so only one of the same namespace counts,
// by its UID and its name.
func (s *state) lendsTo(lender, owner *pod) bool {
	l, _ := s.liveOf(lender.uid, lender.namespace, lender.name)
	return l.owner == podfacts.Owner{Name: owner.name, UID: owner.uid, IsPod: true} && owner.uid != "" && owner.uid != lender.uid && owner.namespace == lender.namespace &&
		!owner.group.in(s).shared()
}

// lenders returns the pods that lend to another one.
func (s *state) lenders(owner *pod) (out []*pod) {
	for _, uid := range s.byOwner[owner.uid] {
		for _, p := range s.byUID[uid] {
			if s.lendsTo(p, owner) {
				out = append(out, p)
			}
		}
	}
	return out
}

// lentTo returns what is lent to any sandbox of a pod. A later one has it too, and keeps it when the earlier one is removed.
func (s *state) lentTo(p *pod) policy.Lent {
	out := p.borrowed()
	for _, other := range p.group.in(s).pods {
		if other != p && other.uid == p.uid && other.lent.Load() != nil {
			out = out.Over(other.borrowed())
		}
	}
	return out
}

// markDirty has the reconciler compare a group.
func (n *Node) markDirty(g groupIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	s.markDirty(g.in(s))
}

// layersMoved has the containers resolved again whose layers are elsewhere than before.
func (n *Node) layersMoved(now *layers.Locations) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for pod, c := range s.all() {
		if c.hasMoved(now) {
			s.markDirty(pod.group.in(s))
		}
	}
}
