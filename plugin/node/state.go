package node

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/plugin/handover"
	"github.com/nri-blkio/nri-blkio/plugin/node/guard"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/node/queue"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file has the state: groups of pods, their pods, and indexes of both.

// state holds the pods of the node. A Node keeps it behind a lock, and holds that for a short time: what has the lock neither logs,
// nor reads or writes anything on the node. The methods of state, group and pod are called with the lock.
type state struct {
	pods map[string]*pod // by sandbox ID
	// groups has the same pods by their pod cgroup, see groupKey.
	groups map[string]*group
	// bystanders has those groups that neither the policy nor annotations nor a record concern.
	bystanders map[*group]reading
	indexes
	// live has what the API server knows about pods now, by their UID. The pods may not be here yet. The values do not change.
	live map[string]live
	// namespaceKeys are the keys of the labels of namespaces that requests keep, nil for none.
	namespaceKeys []string
	arrivals      int // pods and containers that became part of the state
	unexpected    int // events that the lifecycle of a container has no transition for
	// queue has the groups that the reconciler has to compare with their cgroups. A token in wake makes it look at the
	// queue.
	queue queue.Queue[groupIdentity]
	wake  signal
	// watch watches the ends of containers. It is nil before Run, and while the watch cannot be set up.
	watch handover.Adder
}

func newState(wake signal) *guard.Value[state] {
	return guard.New(state{
		pods: map[string]*pod{}, groups: map[string]*group{}, queue: queue.New[groupIdentity](maxReconciled, patientFor), wake: wake,
		bystanders: map[*group]reading{}, indexes: newIndexes(), live: map[string]live{},
	})
}

// group has the sandboxes of one pod cgroup. There is one sandbox, or two for a while when the kubelet makes a
// new one for a pod.
type group struct {
	groupFacts
	pods []*pod // in the order of their arrival

	entry   queue.Entry[groupIdentity]
	drain   lifecycle.Drain
	plan    *enforce.Targets // nil after a change
	changes int              // number of changes; a plan is kept only if this is the same as when the plan began
	retry   retry
	// writing is when the goroutine took the token that writes the group's cgroups; zero without one, and until a new one has
	// the lock.
	writing  time.Time
	recorded recorded
	foreign  string // limits of other programs in io.max of the pod's cgroup, as they were last read; "" for none
	told     told
}

// groupIdentity refers to the facts about a group that never change. Two are equal if they are of the same group.
type groupIdentity struct{ *groupFacts }

// groupFacts are what a groupIdentity refers to.
type groupFacts struct {
	ref    guard.Ref[state, group]
	cgroup string // below the cgroup root; "" where the runtime named none
	key    string // name of the group; no other group has it at the same time
	// token is held by the writer, so that two writers cannot interleave and leave the older
	// values. It is a channel, because a write to a dying disk can hang and waiters have
	// deadlines.
	token chan struct{}
	// written has what this process wrote to the group's cgroups. Only the holder of the token uses it.
	written *enforce.Written
}

// in returns the group. It may not be part of the state any more.
func (g groupIdentity) in(s *state) *group { return g.ref.In(s) }

func (g *group) identity() groupIdentity { return groupIdentity{&g.groupFacts} }

func newGroup(cgroup, key string) *group {
	// One allocation. A group is copied with the lock, and what is written is not, since it is used with the token only.
	made := &struct {
		group
		written enforce.Written
	}{group: group{groupFacts: groupFacts{cgroup: cgroup, key: key, token: make(chan struct{}, 1)}, recorded: recorded{granted: nothing}}}
	g := &made.group
	g.written, g.ref = &made.written, guard.RefTo[state](g)
	g.entry.Of = g.identity()
	return g
}

// nothing is what was granted to a pod as a whole before its first plan.
var nothing = &policy.Desired{}

// retry has the error of a group whose limits are not all in force, and the pause before the next try.
type retry struct {
	err   error         // nil if all limits are in force
	pause time.Duration // until the next try, 0 without a failure
}

// recorded has the values that the next record of the pod takes over from earlier ones.
type recorded struct {
	exits   []record.Exit   // of containers that have ended
	granted *policy.Desired // to the pod as a whole, by its last plan; never nil, and the value does not change
	limits  policy.Settings // of the pod as a whole, by the record of an earlier process: see recalled
	cleared map[string]bool // the cgroups of the pod that are marked as cleared
	weights policy.Settings // of the pod as a whole, on all disks and on single disks
	read    bool            // the record that an earlier process left was read into these values
}

// pod is one sandbox.
type pod struct {
	podIdentity
	arrival    int          // a later sandbox replaces an earlier one
	joined     time.Time    // when it became a part of the state
	containers []*container // in the order of their names and IDs
	// known has the facts of all containers created so far, by name. It includes containers that were rejected
	// or removed.
	known map[string]knownFacts
	// total are the limits of the pod as a whole, with the containers that were accepted so far. They count for the budget.
	total policy.Settings
	// isComplete is true once a pass has found that all containers are decided and one runs: containers are created one by one.
	isComplete bool
	edit       edit
	// trying is the edit that is being tried, nil if none is.
	trying *podfacts.Request
	// isNew is true for a sandbox that an event has reported first: all its containers are known.
	isNew bool
	// restored is true after the record of the pod was read for an edit that an earlier process took over.
	restored bool
	pace     pace
}

// podIdentity refers to the facts about a sandbox that never change once it is part of the state. Two are equal if they are of the
// same sandbox. The zero value is the identity of no pod.
type podIdentity struct{ *fixedFacts }

// fixedFacts are what a podIdentity refers to.
type fixedFacts struct {
	ref                      guard.Ref[state, pod] // set with the group when the pod becomes part of the state
	id, namespace, name, uid string
	request                  podRequest
	lent                     atomic.Pointer[policy.Lent] // to the pod, see borrow; nil for nothing
	borrows                  pace                        // of changes of lent; used with the lock
	group                    groupIdentity
}

// isNone reports whether this is the identity of no pod.
func (p podIdentity) isNone() bool { return p.fixedFacts == nil }

// in returns the pod. It may not be part of the state any more.
func (p podIdentity) in(s *state) *pod { return p.ref.In(s) }

// knownFacts has the facts of the newest container of a name.
type knownFacts struct {
	facts   policy.Container
	size    int // in bytes, of the mounts in the OCI spec
	arrival int
}

func (p *podIdentity) String() string { return p.namespace + "/" + p.name }

// asks reports whether a request is still the one of the pod that counts.
func (p *podIdentity) asks(r *podfacts.Request) bool { return p.request.now.Load() == r }

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
		p.known[c.name] = knownFacts{facts, c.disks.Size, c.arrival}
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

// hasLiveContainer reports whether a container of the pod may have a part of a budget.
func (p *pod) hasLiveContainer() bool { return slices.ContainsFunc(p.containers, (*container).isLive) }

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

// shared reports whether pods of different identity are in one pod cgroup. The kubelet never does that. The
// plugin then limits the cgroup for none of them.
func (g *group) shared() bool {
	return slices.ContainsFunc(g.pods, func(p *pod) bool { return p.uid != g.pods[0].uid })
}

// hasLate reports whether the budget had no room for a live container of a group.
func (g *group) hasLate() bool {
	isLate := func(c *container) bool { return c.isLive() && c.isLate() }
	return slices.ContainsFunc(g.pods, func(p *pod) bool { return slices.ContainsFunc(p.containers, isLate) })
}

// groupKey returns the key of a group in state.groups. A pod without a cgroup gets a key of its own.
func groupKey(cgroup, sandbox string) string {
	if cgroup == "" {
		return "\x00" + sandbox
	}
	return cgroup
}

// join makes a pod part of the node's state.
func (s *state) join(joining podIdentity, cgroup string) *pod {
	key := groupKey(cgroup, joining.id)
	g := s.groups[key]
	if g == nil {
		g = newGroup(cgroup, key)
		s.groups[key] = g
	}
	p := &pod{podIdentity: joining, arrival: s.nextArrival(), joined: time.Now(), known: map[string]knownFacts{}}
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
	s.markLenders(p)
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
	delete(s.bystanders, g)
	g.recorded, g.told = recorded{granted: nothing, cleared: g.recorded.cleared}, told{} // a hand-over may reference the group for hours
	s.drop(g)
}

// drop removes a group without a pod, unless a goroutine writes its cgroups. The pod's next sandbox has to wait
// for that writer, whose values are older.
func (s *state) drop(g *group) {
	if len(g.pods) == 0 && len(g.token) == 0 && s.groups[g.key] == g {
		delete(s.groups, g.key)
	}
}

// concerns reports whether the pods of a group are no bystanders.
func (s *state) concerns(g *group) bool {
	_, passes := s.bystanders[g]
	return !passes
}

// changed drops the plan, and what is kept of the group for budgets.
func (s *state) changed(g *group) {
	s.recount(g)
	g.plan = nil
	g.told.look()
	g.changes++
	g.drain.Change()
}

// markDirty has the reconciler compare a group that may have changed.
func (s *state) markDirty(g *group) {
	s.changed(g)
	s.reconcileAt(g, time.Now())
}

// reconcileAt has the reconciler compare a group at the latest at some time, unless its last pod has left or nothing concerns it.
func (s *state) reconcileAt(g *group, at time.Time) {
	if len(g.pods) > 0 && s.concerns(g) {
		s.queue.Add(&g.entry, at)
		s.wake.send()
	}
}

// index has parts of the state by a name. Several of them may have the same one.
type index[V comparable] map[string][]V

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

// indexes has parts of the state by facts about them that never change.
type indexes struct {
	namespaces map[string]*namespace
	byCgroup   index[*container] // without those whose cgroup is not known
	byUID      index[*pod]
}

func newIndexes() indexes {
	return indexes{namespaces: map[string]*namespace{}, byCgroup: index[*container]{}, byUID: index[*pod]{}}
}

// addContainer adds a container, unless its cgroup is not known.
func (x *indexes) addContainer(c *container) {
	if c.cgroup != "" {
		x.byCgroup.add(c.cgroup, c)
	}
}
