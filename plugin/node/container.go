package node

import (
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/handover"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/guard"
	"github.com/nri-blkio/nri-blkio/plugin/node/layers"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file has what the state holds of one container, the changes of its phase, and the room for its mounts.

// container is one container of a pod, as part of the state.
type container struct{ snapshot }

// snapshot is the state of a container at one moment. The values that it refers to never change, so a copy of
// it needs no lock.
type snapshot struct {
	identity
	life     lifecycle.Container // the phase, which only state.handle changes
	pid      int                 // of the first process; 0 if the runtime does not name it, pidUnknown before its start
	search   search
	layer    *layers.Own // nil before the first resolution
	disks    inventory.Container
	use      undeclaredUse
	decision *decision // undecided before the first one
	grants
	exit exitState
}

// pidUnknown is a container's process ID until the event of its start names the process.
// The reconciler may see the container's cgroup before that event.
const pidUnknown = -1

// grants has the values that a container has or had, apart from the decision about it.
type grants struct {
	// spec has the values that the runtime writes again with each update of the container's resources
	// (docs/reference/quirks.md).
	spec plan.OCISpec
	// recalled is what an earlier process has granted, nil before its record was read.
	recalled *recalled
	vetting  vetting
	start    startState
}

// recalled is what the record of an earlier process says of a container.
type recalled struct {
	granted  policy.Desired
	limits   policy.Settings // they count for the budget of the namespace until there is a decision
	lent     policy.Lent     // to its pod
	unvetted bool            // the budget had no room for it, or was not asked
}

// noRecord is what is recalled of a container without a record.
var noRecord = &recalled{}

// vetting is what the budget of the namespace has answered about a container.
type vetting uint8

// The answers.
const (
	unvetted vetting = iota // it was not asked, or not about all disks of the container
	vetted                  // it had room, or the policy lets containers run without; also for one that ran before the plugin knew it
	late                    // it had no room when it was asked last, and the container runs
)

// stage returns the stage of a container that was created.
func (g *grants) stage() policy.Stage {
	switch {
	case g.vetting == late:
		return policy.Late
	case g.start == startRefused: // no mount of it raises the limit of the pod
		return policy.Rejected
	}
	return policy.Running
}

// needsVetting reports whether the budget was not asked yet about all disks of a live container, or had no room for it. Before its
// start as well, and after a refused one: what a decision grants without that question would be no growth once it runs.
func (c *snapshot) needsVetting() bool {
	return c.vetting != vetted && c.isLive()
}

// isLate reports whether the budget had no room for a live container.
func (c *snapshot) isLate() bool { return c.vetting == late }

// startState is the state of the answer to StartContainer.
type startState uint8

// The states of the answer.
const (
	startAnswered startState = iota // there was one, or the start was not reported
	startDue
	startUnvetted // it is due, and the budget was not asked before about all disks of the container
	startRefused  // it refused a container that the budget was not asked about before, or the creation was refused
)

// identity has the facts about a container that never change.
type identity struct {
	ref      containerRef // set by the registration
	id, name string
	pod      podIdentity
	cgroup   string // below the cgroup root; "" if it is not known, and noCgroup is the reason
	noCgroup error
	// memoryLimit is the lower one of memory.max and memory.high in bytes, or policy.NoMemory.
	memoryLimit uint64
	arrival     int // a later one of the same name replaces an earlier one; set by the registration
	// token is held by the goroutine that searches for the disks of the container.
	token chan struct{}
}

// containerRef refers to a container. A container that is created again gets another reference.
type containerRef = guard.Ref[state, container]

// in returns the container. It may not be part of the state any more.
func (c identity) in(s *state) *container { return c.ref.In(s) }

// newContainer returns a container with the facts that the runtime reported, without those mounts that do not fit into room.
func newContainer(pod podIdentity, ctr *Container, room int) snapshot {
	c := snapshot{
		identity: identity{id: ctr.ID, name: ctr.Name, pod: pod, memoryLimit: ctr.memoryLimit(), token: make(chan struct{}, 1)},
		pid:      pidUnknown,
		decision: undecided,
		disks:    inventory.NewContainerWithin(ctr.Spec(), room),
	}
	c.cgroup, c.noCgroup = cgroupfs.ContainerCgroup(ctr.Cgroup, pod.group.cgroup)
	c.spec = plan.ReadSpec(ctr.ID, ctr.Mark, ctr.Unified)
	return c
}

// add makes a container part of its pod, and completes its identity.
func (s *state) add(c *snapshot) *container {
	added := &container{}
	c.ref, c.arrival = guard.RefTo[state](added), s.nextArrival()
	added.snapshot = *c
	p := c.pod.in(s)
	p.insert(added)
	s.recount(p.group.in(s))
	s.addContainer(added)
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

// search is the search for the disks of a container.
type search struct {
	began time.Time // zero if none is under way
	again bool      // the disks may have changed since it began
	found depth     // what is known by the last one without an error
	err   error     // of the last one
	// rev is raised by each result, and by each event after which the disks may be others.
	rev int
	// notCompared is the error because of which the mounts were not compared. It is set only in a copy.
	notCompared error
}

// depth is what is known about the disks of a container.
type depth uint8

// The depths.
const (
	foundNothing depth = iota
	foundDisks
	foundLowest // the physical disks below them as well, for a budget
)

// isDecidable reports whether enough is known about the disks of the container for a decision.
func (c *snapshot) isDecidable() bool { return c.search.found != foundNothing && c.search.err == nil }

// hasMoved reports whether the writable layer of a container is known to be elsewhere than when the container was resolved.
func (c *snapshot) hasMoved(now *layers.Locations) bool {
	return now.HasMoved(c.layer, c.pod.request.now.Load().Handler)
}

// undeclaredUse is the I/O of a container on undeclared disks.
type undeclaredUse struct {
	seen inventory.Usage // Container.Facts has those disks with which the limits were decided
	// pending is true if the container ran before the plugin started; cleared once its I/O was compared.
	pending bool
	failure error // of the last comparison
}

// undecided is the decision about a container before the first one.
var undecided = &decision{}

// decision is the request of a container and the limits that it gets. It never changes, see snapshot.redecide.
type decision struct {
	policy  *policy.Pod       // the policy of the decision; nil before it
	request *podfacts.Request // the request that was decided; nil before the decision
	rev     int               // search.rev of the disks that it is about
	desired policy.Desired
	lends   policy.Lent     // to the owner of the pod
	err     error           // why part of the request was not granted
	total   policy.Settings // of the pod as a whole, with the containers that were created so far
}

// redecide replaces the decision by a changed copy.
func (c *snapshot) redecide(change func(*decision)) {
	d := *c.decision
	change(&d)
	c.decision = &d
}

// hasValuesOf reports whether two decisions set the same values. It ignores the sources of the values.
func (d *decision) hasValuesOf(o *decision) bool {
	return slices.EqualFunc(d.desired.Settings, o.desired.Settings, func(a, b policy.Setting) bool { return a.Value == b.Value })
}

// decidedBy reports whether the limits of the container were decided by this policy and the request of its pod.
func (c *snapshot) decidedBy(pol *policy.Policy) bool {
	return c.decision.policy.Of() == pol && c.pod.asks(c.decision.request)
}

// exitState has the values that the plugin needs at the end of a container.
type exitState struct {
	plan handover.Plan
	// planned is true if plan was computed, and for a container of a bystander without a record. It is false while the
	// hand-over is disabled: plan is what was computed before.
	planned bool
	// cgroupIDs are the IDs of its cgroup and those below it. They are read with the first comparison of the cgroup and
	// at its end, and cleared when the end of the container is recorded.
	cgroupIDs []uint64
}

func (c *identity) logger(log logrus.FieldLogger) logrus.FieldLogger {
	return log.WithFields(logrus.Fields{"pod": c.pod.String(), "container": c.name})
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
		c.use.pending = true
	}
	if do.Has(lifecycle.RecordExit) && !do.Has(lifecycle.HandOver) {
		s.noteExit(&c.snapshot, false)
	}
	if pod := c.pod.in(s); now == lifecycle.Absent && slices.Contains(pod.containers, c) {
		pod.remove(c)
		s.byCgroup.remove(c.cgroup, c)
	}
	s.recount(g)
	if do != 0 || before.MayRun() != now.MayRun() {
		s.changed(g)
	}
	return do
}

// writes returns whether limits apply to the writes of the container.
func (c *snapshot) writes() lifecycle.Writes {
	switch {
	case !c.exit.planned:
		return lifecycle.WritesUnknown
	case c.exit.plan.IsEmpty():
		return lifecycle.WritesUnlimited
	}
	return lifecycle.WritesLimited
}

// mayRun reports whether a process of the container may run.
func (c *snapshot) mayRun() bool { return c.life.Phase().MayRun() }

// isLive reports whether a container may run, or was created and has not started.
func (c *snapshot) isLive() bool { return c.mayRun() || c.life.Phase() == lifecycle.Created }

// isUnplaced reports whether a container has started and the plugin has seen no process of it.
func (c *snapshot) isUnplaced() bool { return c.cgroup != "" && c.life.Phase() == lifecycle.Starting }

// end closes a container in the drain.
func (s *state) end(g *group, id string, written bool) {
	g.drain.End(id, written)
	s.changed(g)
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
