package node

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/budget"
	"github.com/nri-blkio/nri-blkio/policy/grant"
)

// A pod gets limits in three steps, for each reason: a creation, a start, an edit, a new policy or a changed disk.
// find.go finds the disks. decide is pure, and decides by what was found. A section with the lock commits the proposal: commitNew
// for a creation, commit for containers of the state, and commitEdit for an edit. It asks the budget of the namespace, and commits
// no proposal about a pod that has changed meanwhile.

// errStale means that a pod has changed since the facts were read by which it was decided.
var errStale = errors.New("the pod has changed meanwhile")

// errRemoved means that a pod has left since a container of it was to be created.
var errRemoved = errors.New("the pod was removed meanwhile")

// podView has the facts about a pod by which it is decided, as they were at one moment.
type podView struct {
	pod        podIdentity
	request    *podfacts.Request // that counts
	containers []snapshot
	known      []knownFacts    // of all that were created so far
	granted    *policy.Desired // to the pod as a whole, so far; nil for nothing
	noTotal    string          // why the pod as a whole cannot have limits, "" if it can
	changes    int             // of the group
}

// viewPod returns a view of a pod. The policy has to be loaded afterwards: a new one changes all groups once it is in force.
func (n *Node) viewPod(of podIdentity) podView {
	s := n.state.Lock()
	defer n.state.Unlock()
	p, g := of.in(s), of.group.in(s)
	v := podView{pod: of, request: of.request.now.Load(), granted: g.grantedTo(p), changes: g.changes}
	v.known = slices.AppendSeq(make([]knownFacts, 0, len(p.known)), maps.Values(p.known))
	switch {
	case of.group.cgroup == "":
		v.noTotal = "the runtime reports no cgroup for the pod"
	case g.shared():
		v.noTotal = "the pod shares its cgroup with another pod"
	}
	v.containers = make([]snapshot, 0, len(p.containers))
	for _, c := range p.containers {
		v.containers = append(v.containers, c.snapshot)
	}
	return v
}

// isCurrent reports whether the pod is as it was when the view was made.
func (v *podView) isCurrent(s *state) bool {
	p := v.pod.in(s)
	return s.pods[p.id] == p && v.pod.group.in(s).changes == v.changes && v.pod.asks(v.request)
}

// proposal is what some containers of a pod are granted by a request under a policy.
type proposal struct {
	view       *podView
	request    *podfacts.Request
	policy     *policy.Pod
	containers []*snapshot     // with their new decisions
	total      policy.Settings // of the pod as a whole, with them
}

// propose decides containers of a pod of the state.
func (v *podView) propose(by *podfacts.Request, pol *policy.Pod, containers []*snapshot, missing []string) proposal {
	return proposal{view: v, request: by, policy: pol, containers: containers, total: v.decide(by, pol, containers, missing)}
}

// decide decides containers of a pod as a whole, and returns the limits of the pod. Each is passed with the disks and the stage by which
// it is decided, and gets its decision. decide reads nothing of the node.
func (v *podView) decide(by *podfacts.Request, pol *policy.Pod, containers []*snapshot, missing []string) (total policy.Settings) {
	in := grant.Pod{Policy: pol, Before: v.after(by, v.granted), NoTotal: v.noTotal, Missing: missing}
	newest := map[string]int{}
	for _, k := range v.known {
		newest[k.facts.Name] = k.arrival
	}
	for _, c := range containers {
		facts := c.disks.Facts
		switch facts.Stage = c.stage(); {
		case c.arrival == 0:
			facts.Stage = policy.Created
			delete(newest, c.name)
		case c.arrival < newest[c.name]:
			facts.Stage = policy.Rejected // a later container has its name: its mounts bring no limit of the pod
		default:
			delete(newest, c.name)
		}
		in.Containers = append(in.Containers, grant.Container{
			Facts: facts, TooManyMounts: c.disks.HasTooManyMounts(), Before: v.after(by, c.granted()),
		})
	}
	for _, other := range v.known {
		if _, isOther := newest[other.facts.Name]; isOther {
			in.Others = append(in.Others, other.facts)
		}
	}
	decided := grant.Decide(&in)
	for i, c := range containers {
		d := &decided.Containers[i]
		c.decision = &decision{
			policy: pol, request: by, rev: c.search.rev, desired: d.Desired, lends: pol.Lends(&in.Containers[i].Facts, &d.Desired),
			err: d.Err,
		}
	}
	return decided.Total.Settings
}

// copies returns copies of containers, which a proposal may change.
func copies(of []snapshot) []*snapshot {
	copied, out := slices.Clone(of), make([]*snapshot, 0, len(of))
	for i := range copied {
		out = append(out, &copied[i])
	}
	return out
}

// editsAnnotations reports whether a proposal is by other annotations than those that count.
func (p *proposal) editsAnnotations() bool {
	return !p.request.HasAnnotationsOf(p.view.request)
}

// after returns what a request may leave of what was granted by the one that counts.
func (v *podView) after(by *podfacts.Request, granted *policy.Desired) *policy.Desired {
	if !by.HasAnnotationsOf(v.request) {
		left := granted.WithoutAsked()
		return &left
	}
	return granted
}

// editOf is the edit of one pod, as the reconciler tries it.
type editOf struct {
	pod    podIdentity
	next   *podfacts.Request
	parts  podfacts.Parts // in which it differs from the request that counts
	waits  bool           // its annotations wait for a container
	claims []string       // those whose limits it changes, see ChangedClaims
}

// A commit is one section with the lock. It asks the budget of the namespace, and makes a proposal count, unless the pod has changed
// since the proposal.

// commitNew makes a new container part of its pod, unless it is refused, or the budget of its namespace has no room
// and the policy rejects that: between the question and the registration no other container may take the room. total are the limits of
// the pod as a whole with it. If the runtime does not wait any more, it may have given up the container; then StartContainer makes it
// part of the pod.
func (n *Node) commitNew(ctx context.Context, v *podView, c *snapshot, total policy.Settings, isRefused bool) (excess *annotation.Error, _ error) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := c.pod.group.in(s)
	switch given := ctx.Err(); {
	case given != nil && isRefused:
		return nil, nil
	case given != nil:
		return nil, given
	case s.pods[c.pod.id] != c.pod.in(s):
		return nil, errRemoved
	case !v.isCurrent(s):
		return nil, errStale
	case isRefused:
		s.rememberRejected(c)
		return nil, nil
	}
	if old := c.pod.in(s).container(c.id); old != nil {
		s.handle(old, lifecycle.RemoveContainer) // its creation failed elsewhere, and is repeated
	}
	if excess = s.excess(g, []*snapshot{c}, total, nil); excess != nil && c.decision.policy.Refuses(excess) {
		s.rememberRejected(c)
		return excess, nil
	}
	if c.disks.IsResolved() { // disks that could not be read are found later, and asked about then
		c.vetting = vetted
	}
	s.handle(s.add(c), lifecycle.CreateContainer)
	c.pod.in(s).total = total
	s.remember(c)
	s.changed(g)
	return excess, nil
}

// rememberRejected remembers the facts of a container that does not become part of its pod.
func (s *state) rememberRejected(c *snapshot) {
	p := c.pod.in(s)
	last, isKnown := p.known[c.name]
	if !isKnown || last.facts.Stage == policy.Rejected { // otherwise what an accepted one has brought stays a limit of the pod
		if c.disks.HasTooManyMounts() { // those that fit would take the room of the other containers
			c.disks.Facts.Mounts, c.disks.Size = nil, 0
		}
		last = knownFacts{facts: c.disks.Facts, size: c.disks.Size}
		last.facts.Stage = policy.Rejected
	}
	last.arrival, last.isRejected = s.nextArrival(), true
	p.known[c.name] = last
	s.recount(p.group.in(s))
	if p.edit.next != nil { // the request that counts rejects the container as well
		s.markDirty(p.group.in(s))
	}
}

// overBudget is a container for which a budget has no room.
type overBudget struct {
	c       *snapshot
	excess  *annotation.Error
	rejects bool // the policy lets no container run above the budget
}

// commit makes a proposal count for containers of the state, unless the pod has changed. It stops at a container for which the budget
// has to be asked, and has no room, unless that is known.
func (n *Node) commit(ctx context.Context, p *proposal, known map[containerRef]*annotation.Error) (over []overBudget, _ error) {
	s := n.state.Lock()
	defer n.state.Unlock()
	if !p.view.isCurrent(s) {
		return nil, errStale
	}
	pod, isChanged := p.view.pod.in(s), false
	g := pod.group.in(s)
	defer func() {
		if s.recount(g); isChanged { // a late container is decided again and again: that alone changes nothing
			s.changed(g)
		}
	}()
	for _, fresh := range p.containers {
		c := fresh.in(s)
		if excess := known[c.ref]; excess != nil {
			s.toRoom(g, fresh, p.total, s.growth(c, fresh, p.total))
			fresh.redecide(func(d *decision) { d.err = p.policy.First(d.err, excess) })
		} else if excess := s.vet(c, fresh, p.total); excess != nil {
			over = append(over, overBudget{fresh, excess, fresh.vetting != vetted})
			if fresh.vetting != vetted {
				return over, nil
			}
		}
		isChanged = isChanged || !fresh.isLate() || !c.isLate() || !fresh.decision.isLike(c.decision)
		c.vetting, c.decision = fresh.vetting, fresh.decision
		s.remember(&c.snapshot)
	}
	isChanged = isChanged || !haveSameValues(pod.total, p.total)
	pod.total = p.total
	if ctx.Err() != nil { // too late for the caller to write the limits
		s.markDirty(g)
	}
	return over, nil
}

// vet asks the budget of its namespace about a container of the state, if it was not asked before, and notes the answer in fresh. The
// container is vetted if there is room, or if the policy lets containers run without.
func (s *state) vet(c *container, fresh *snapshot, total policy.Settings) (excess *annotation.Error) {
	if !c.needsVetting() {
		return nil
	}
	excess = s.excess(c.pod.group.in(s), []*snapshot{fresh}, total, s.growth(c, fresh, total))
	if excess == nil || !fresh.decision.policy.Refuses(excess) {
		fresh.vetting = vetted
	}
	return excess
}

// commitEdit makes a candidate of an edit the request of its pod, with the decisions for its containers. It returns an error of the
// budget if that has no room.
func (n *Node) commitEdit(p *proposal, e *editOf) (excess *annotation.Error, _ error) {
	s := n.state.Lock()
	defer n.state.Unlock()
	pod := e.pod.in(s)
	if pod.edit.next != e.next || !p.view.isCurrent(s) {
		s.markDirty(pod.group.in(s))
		return nil, errStale
	}
	if excess := s.vetEdit(p); excess != nil {
		return excess, nil
	}
	if p.editsAnnotations() {
		s.replaceAnnotations(pod, p.request)
	} else {
		s.replaceRequest(pod, p.request)
	}
	if p.request == e.next {
		pod.edit = edit{}
	} else {
		pod.edit.err = nil // of what is left
		pod.group.in(s).told.Forget(func(key noticeKey) bool { return key.kind == changeRejected && key.pod == pod.ref })
	}
	for _, fresh := range p.containers {
		c := fresh.in(s)
		c.decision, c.disks, c.layer, pod.total = fresh.decision, fresh.disks, fresh.layer, p.total
		s.remember(&c.snapshot)
	}
	s.revise(pod) // annotations may be unknown, and only facts have changed
	return nil, nil
}

// vetEdit asks the budget where an edit grants the pod more than before: lower limits always count, also while more is granted than the
// budget. A late container gets the room that the new decisions leave.
func (s *state) vetEdit(p *proposal) *annotation.Error {
	b, g := p.policy.Budget(), p.view.pod.group.in(s)
	if b == nil || len(p.containers) == 0 {
		return nil
	}
	next, assumed := s.assuming(g, p.containers, p.total)
	if p.editsAnnotations() {
		carried := g.recorded.granted.OnlyCarried()
		next.recorded.granted = &carried
	}
	var asking, raised []*snapshot
	for _, fresh := range p.containers {
		c := assumed.container(fresh.id)
		if c.needsVetting() && c.isLate() {
			s.toRoom(next, &c.snapshot, p.total, nil)
			fresh.decision = c.decision
		}
		switch {
		case !c.isLive():
		case c.decision.raises(b, fresh.in(s).decision): // last, so that an error names one of them
			raised = append(raised, &c.snapshot)
		default:
			asking = append(asking, &c.snapshot)
		}
	}
	before, after := g.grants(p.view.pod.namespace, b), next.grants(p.view.pod.namespace, b)
	maps.DeleteFunc(after, func(at blkio.Address, amount blkio.Amount) bool { return amount <= before[at] })
	if len(after) == 0 {
		return nil
	}
	// An error of the budget is one of an invalid request, which rejects an edit under each policy.
	return s.excess(next, append(asking, raised...), p.total, func(at blkio.Address) bool { return after[at] > 0 })
}

// assuming returns copies of a group and of one of its pods, with other decisions for containers of that, and another total. The copies
// are no part of the state.
func (s *state) assuming(g *group, decided []*snapshot, total policy.Settings) (*group, *pod) {
	was := decided[0].pod.in(s)
	out, pod := *g, *was
	out.pods, pod.containers = slices.Clone(g.pods), slices.Clone(was.containers)
	pod.total = total
	for i := range decided {
		c := *decided[i].in(s)
		c.decision = decided[i].decision
		pod.containers[slices.Index(was.containers, decided[i].in(s))] = &c
	}
	out.pods[slices.Index(g.pods, was)] = &pod
	return &out, &pod
}

// The budget of a namespace is asked when a container is created. It is asked later about a late container: no plugin was connected
// at its creation, some of its disks could not be found, or it has other disks since. Without room such a container is rejected at
// its start. If it runs already, or the runtime does not reject it, it gets the room that is left, and the budget is asked again
// with each retry.

// growth reports where a new decision for a container of the state grants its pod more of the budget. It is nil if the container is
// decided for the first time: all of it is more. What a container has already stays, as after any change by an administrator.
func (s *state) growth(c *container, fresh *snapshot, total policy.Settings) func(blkio.Address) bool {
	b, g := fresh.decision.policy.Budget(), c.pod.group.in(s)
	if b == nil || c.decision.policy.Budget() == nil {
		return nil
	}
	next, _ := s.assuming(g, []*snapshot{fresh}, total)
	before, after := g.grants(c.pod.namespace, b), next.grants(c.pod.namespace, b)
	return func(at blkio.Address) bool { return after[at] > before[at] }
}

// toRoom lowers the limits of a late container to the room that the budget of its namespace has beside the rest of its group, where its
// pod is granted more; everywhere if grows is nil. What it asks for is noted in Lowered: a later policy may have no budget, and reject
// the annotations that it would be decided by again.
func (s *state) toRoom(g *group, c *snapshot, total policy.Settings, grows func(blkio.Address) bool) {
	d := &c.decision.desired
	own, others := s.tallyFor(g, []*snapshot{c})
	claim := budget.Claim{Pod: c.decision.policy, Desired: d, Total: total, Own: own, Others: others, Grows: grows}
	limits := claim.Room()
	names := maps.Clone(d.Disks)
	for _, x := range limits {
		if names == nil {
			names = map[blkio.Dev]string{}
		}
		names[x.Dev] = d.DiskName(x.Dev)
	}
	left := d.Settings.Lowest(limits)
	lowered := d.Settings.Where(func(s policy.Setting) bool {
		now, _ := left.Get(s.Address)
		return now.Value != s.Value
	})
	c.redecide(func(to *decision) {
		to.desired.Settings, to.desired.Lowered = left, d.Lowered.Join(lowered)
		to.desired.Disks, to.desired.Warnings = names, slices.Concat(d.Warnings, []string{lateWarning})
		to.lends = to.policy.Lends(&c.disks.Facts, &to.desired)
	})
}

// lateWarning is the warning about a late container.
const lateWarning = "the budget of the namespace has no room for all that the container asks for: it gets what is left"
