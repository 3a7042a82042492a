package node

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/handover"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
	"github.com/nri-blkio/nri-blkio/plugin/node/guard"
	"github.com/nri-blkio/nri-blkio/plugin/node/layers"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// This file has what the state holds of one container, and what is asked of those of a pod or a group.

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
	// isStarting is true from the report of its start until the answer.
	isStarting bool
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
	if g.vetting == late {
		return policy.Late
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

// identity has the facts about a container that never change.
type identity struct {
	ref      containerRef // set by the registration
	id, name string
	pod      podIdentity
	cgroup   string // below the cgroup root; "" if it is not known, and search.err is the reason
	// memoryLimit is the lower one of memory.max and memory.high in bytes, or policy.NoMemory.
	memoryLimit uint64
	arrival     int // a later one of the same name replaces an earlier one; set by the registration
	// token is held by the goroutine that searches for the disks of the container. It is set by the registration.
	token *bounded.Token
}

// containerRef refers to a container. A container that is created again gets another reference.
type containerRef = guard.Ref[state, container]

// in returns the container. It may not be part of the state any more.
func (c identity) in(s *state) *container { return c.ref.In(s) }

// search is the search for the disks of a container.
type search struct {
	err error // of the last one
	rev int   // raised by each result, and by each event after which the disks may be others
}

// isDecidable reports whether enough is known about the disks of the container for a decision.
func (c *snapshot) isDecidable() bool { return c.layer != nil && c.search.err == nil }

// hasMoved reports whether the writable layer of a container is known to be elsewhere than when the container was resolved.
func (c *snapshot) hasMoved(now *layers.Locations) bool {
	return now.HasMoved(c.layer, c.pod.request.now.Load().Handler)
}

// undeclaredUse is the I/O of a container on undeclared disks.
type undeclaredUse struct {
	seen    *inventory.Usage // Container.Facts has those disks with which the limits were decided
	failure error            // of the last comparison
}

// unseen is the use of a container before its I/O was first compared, and uncompared that of one that ran before the plugin started.
var unseen, uncompared = &inventory.Usage{}, &inventory.Usage{}

// undecided is the decision about a container before the first one.
var undecided = &decision{}

// decision is the request of a container and the limits that it gets. It never changes, see snapshot.redecide.
type decision struct {
	policy  *policy.Pod       // the policy of the decision; nil before it
	request *podfacts.Request // the request that was decided; nil before the decision
	rev     int               // search.rev of the disks that it is about
	desired policy.Desired
	lends   policy.Lent // to the owner of the pod
	err     error       // why part of the request was not granted
}

// redecide replaces the decision by a changed copy.
func (c *snapshot) redecide(change func(*decision)) {
	d := *c.decision
	change(&d)
	c.decision = &d
}

// hasValuesOf reports whether two decisions set the same values. It ignores the sources of the values.
func (d *decision) hasValuesOf(o *decision) bool {
	return haveSameValues(d.desired.Settings, o.desired.Settings)
}

func haveSameValues(s, o policy.Settings) bool {
	return slices.EqualFunc(s, o, func(a, b policy.Setting) bool { return a.Value == b.Value })
}

// decidedBy reports whether the limits of the container were decided by this policy and the request of its pod.
func (c *snapshot) decidedBy(pol *policy.Policy) bool {
	return c.decision.policy.Of() == pol && c.pod.asks(c.decision.request)
}

// exitState has the values that the plugin needs at the end of a container.
type exitState struct {
	// plan is empty for a container of a bystander without a record. It is nil before it was computed, and while the hand-over is
	// disabled.
	plan *handover.Plan
	// cgroupIDs are the IDs of its cgroup and those below it. They are read with the first comparison of the cgroup and
	// at its end, and cleared when the end of the container is recorded.
	cgroupIDs []uint64
}

func (c *identity) logger(log logrus.FieldLogger) logrus.FieldLogger {
	return log.WithFields(logrus.Fields{"pod": c.pod.String(), "container": c.name})
}

// writes returns whether limits apply to the writes of the container.
func (c *snapshot) writes() lifecycle.Writes {
	switch {
	case c.exit.plan == nil:
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

// granted returns what a container was granted so far, by this process or by an earlier one; nil for nothing.
func (c *snapshot) granted() *policy.Desired {
	switch pol := c.decision.policy; {
	case pol == nil && c.recalled == nil, pol != nil && pol.Mode() != policy.ModeEnforce:
		return nil
	case pol == nil:
		return &c.recalled.granted
	}
	return &c.decision.desired
}

// isDecided reports whether the limits of the container are decided by this policy, the request of its pod and its disks, with room
// in the budget of the namespace.
func (c *snapshot) isDecided(pol *policy.Policy) bool {
	return c.decidedBy(pol) && !c.needsVetting() && c.decision.rev == c.search.rev
}

// isLike reports whether two decisions are about the same, and set the same values for the same reasons.
func (d *decision) isLike(o *decision) bool {
	return d.policy == o.policy && d.request == o.request && d.rev == o.rev && d.hasValuesOf(o) && cause.KeyOf(d.err) == cause.KeyOf(o.err)
}

// needsComparison reports whether the mounts of a running container have not been compared yet.
func (c *snapshot) needsComparison() bool {
	return c.disks.IsUncompared() && c.mayRun() && c.pid > 0
}

// hangs reports whether a search for the disks of the container has been under way for too long.
func (c *snapshot) hangs() bool {
	return c.token.HeldFor() > passDeadline
}

// coversUndeclared reports whether a "*" of the container applies to its undeclared disks.
func (c *snapshot) coversUndeclared() bool {
	return c.mayRun() && c.cgroup != "" && c.disks.IsResolved() && c.decision.policy != nil &&
		c.decision.policy.StarOf(c.name)
}

// isPartial reports whether the plugin failed to find all disks that need limits.
func (c *snapshot) isPartial() bool {
	return !c.disks.IsResolved() || c.use.seen == uncompared && c.coversUndeclared()
}

// refusal returns the error that rejects a container, nil if it may start although part of its request is not granted.
func (c *snapshot) refusal() error {
	if err := c.decision.err; c.decision.policy.Refuses(err) {
		return err
	}
	return nil
}

// borrowed returns what is lent to the pod.
func (p *podIdentity) borrowed() policy.Lent {
	if lent := p.lent.Load(); lent != nil {
		return *lent
	}
	return policy.Lent{}
}

// inForce returns what the container is to have: what it is granted, and no more than what is lent to its pod.
func (c *snapshot) inForce() policy.Desired {
	return c.decision.policy.Borrow(c.decision.desired, c.pod.lent.Load())
}

// undeclared returns the disks that no mount or device of the container declares: those that it uses, and those that are lent.
func (c *snapshot) undeclared() []blkio.Disk {
	lent := c.pod.lent.Load()
	if lent == nil {
		return c.use.seen.Undeclared
	}
	return policy.Together(policy.Lent{Disks: lent.Disks}, policy.Lent{Disks: c.use.seen.Undeclared}).Disks
}

// setRecalled notes the record of an earlier process. What was lent then counts on those disks on which nothing is lent now.
func (c *container) setRecalled(r *recalled) {
	if c.recalled == nil && r != nil && len(r.lent.Disks) > 0 {
		lent := c.pod.borrowed().Over(r.lent)
		c.pod.lent.Store(&lent)
	}
	c.recalled = r
}

// describe formats desired settings for a log field.
func describe(d policy.Desired) []string {
	var out []string
	for _, l := range d.Settings.Lines() {
		if name, isDisk := d.Disks[l.Dev]; isDisk && l.File == blkio.IOMax {
			out = append(out, strings.Replace(l.Text, l.Dev.String(), name, 1))
		} else {
			out = append(out, l.String())
		}
	}
	return out
}

// textOf describes settings.
func textOf(d policy.Desired) string {
	if d.Settings = plan.Kept(d.Settings); len(d.Settings) == 0 {
		return "no limits"
	}
	return strings.Join(describe(d), ", ")
}

// containerText names a container in a note.
func containerText(name string) string { return "container " + quote.Name(name, quote.Most) }

// all returns the containers of a group, with their pods.
func (g *group) all() iter.Seq2[*pod, *container] { return containersOf(slices.Values(g.pods)) }

// all returns the containers of the node, with their pods.
func (s *state) all() iter.Seq2[*pod, *container] { return containersOf(maps.Values(s.pods)) }

func containersOf(pods iter.Seq[*pod]) iter.Seq2[*pod, *container] {
	return func(yield func(*pod, *container) bool) {
		for p := range pods {
			for _, c := range p.containers {
				if !yield(p, c) {
					return
				}
			}
		}
	}
}

// isConcerned reports whether something concerns the pods of the group.
func (g *group) isConcerned() bool { return g.concern >= concerned }

// hasLate reports whether the budget had no room for a live container of a group.
func (g *group) hasLate() bool {
	for _, c := range g.all() {
		if c.isLive() && c.isLate() {
			return true
		}
	}
	return false
}

// shared reports whether pods of different identity are in one pod cgroup. The kubelet never does that. The
// plugin then limits the cgroup for none of them.
func (g *group) shared() bool {
	return slices.ContainsFunc(g.pods, func(p *pod) bool { return p.uid != g.pods[0].uid })
}

// isComplete reports whether all containers of the pod were created, so that targets without a container can be told.
func (p *pod) isComplete() bool { return p.asks(p.complete) }

// hasLiveContainer reports whether a container of the pod may have a part of a budget.
func (p *pod) hasLiveContainer() bool { return slices.ContainsFunc(p.containers, (*container).isLive) }
