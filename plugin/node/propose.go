package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/grant"
)

// A pod gets limits in three steps, for each reason: a creation, a start, an edit, a new policy or a changed disk.
// find.go finds the disks. propose is pure, and decides by what was found. A section with the lock commits the proposal: commitNew
// for a creation, commit for containers of the state, and commitEdit for an edit. It asks the budget of the namespace, and commits
// no proposal about a pod that has changed meanwhile.

// errStale means that a pod has changed since the facts were read by which it was decided.
var errStale = errors.New("the pod has changed meanwhile")

// errRemoved means that a pod has left since a container of it was to be created.
var errRemoved = errors.New("the pod was removed meanwhile")

// podView has the facts about a pod by which it is decided, as they were at one moment.
type podView struct {
	pod        podIdentity
	request    *request // that counts
	containers []snapshot
	known      []knownFacts   // of all that were created so far
	former     policy.Desired // see pod.former
	noTotal    string         // why the pod as a whole cannot have limits, "" if it can
	changes    int            // of the group
}

// viewPod returns a view of a pod. The policy has to be loaded afterwards: a new one changes all groups once it is in force.
func (n *Node) viewPod(of podIdentity) podView {
	s := n.state.Lock()
	defer n.state.Unlock()
	p, g := of.in(s), of.group.in(s)
	v := podView{pod: of, request: of.request.now.Load(), former: p.former, changes: g.changes}
	v.known = slices.AppendSeq(make([]knownFacts, 0, len(p.known)), maps.Values(p.known))
	switch {
	case of.group.cgroup == "":
		v.noTotal = "the runtime reports no cgroup for the pod"
	case g.shared():
		v.noTotal = "the pod shares its cgroup with another pod"
	}
	v.containers = make([]snapshot, 0, len(p.containers))
	for _, c := range p.sorted() {
		v.containers = append(v.containers, c.snapshot)
	}
	return v
}

// isCurrent reports whether the pod is as it was when the view was made.
func (v *podView) isCurrent(s *state) bool {
	p := v.pod.in(s)
	return s.pods[p.id] == p && v.pod.group.in(s).changes == v.changes && v.request.isOf(&v.pod)
}

// proposal is what some containers of a pod are granted by a request under a policy.
type proposal struct {
	view       *podView
	request    *request
	policy     *policy.Pod
	containers []snapshot // with their new decisions
}

// propose decides containers of a pod as a whole. Each is passed with the disks and the stage by which it is decided. It changes
// nothing, and reads nothing of the node.
func (v *podView) propose(by *request, pol *policy.Pod, containers []snapshot, noWeights bool) *proposal {
	in := grant.Pod{Policy: pol, Total: v.former, NoTotal: v.noTotal, NoWeights: noWeights}
	isEdited := by.hasOtherAnnotations(v.request)
	newest := map[string]int{}
	for _, k := range v.known {
		newest[k.facts.Name] = k.arrival
	}
	for i := range containers {
		c := &containers[i]
		facts := c.disks.Facts
		if c.arrival != 0 && c.arrival < newest[c.name] {
			facts.Stage = policy.Rejected // a later container has its name: its mounts bring no limit of the pod
		} else {
			delete(newest, c.name)
		}
		in.Containers = append(in.Containers, grant.Container{
			Facts: facts, TooManyMounts: c.disks.HasTooManyMounts(), Before: c.granted(), IsEdited: isEdited,
		})
	}
	for _, other := range v.known {
		if _, isOther := newest[other.facts.Name]; isOther {
			in.Others = append(in.Others, other.facts)
		}
	}
	out := &proposal{view: v, request: by, policy: pol, containers: containers}
	decided := grant.Decide(&in)
	for i := range containers {
		c, d := &containers[i], &decided.Containers[i]
		c.decision = decision{
			policy: pol, request: by, rev: c.search.rev, desired: d.Desired, err: d.Err, total: decided.Total.Settings,
		}
	}
	return out
}

// granted returns what a container was granted so far, by this process or by an earlier one.
func (c *snapshot) granted() policy.Desired {
	switch pol := c.decision.policy; {
	case pol == nil:
		return c.former.granted
	case pol.Mode() != policy.ModeEnforce:
		return policy.Desired{}
	}
	return c.decision.desired
}

// isDecided reports whether the limits of the container are decided by this policy, the request of its pod and its disks, with room
// in the budget of the namespace.
func (c *snapshot) isDecided(pol *policy.Policy) bool {
	return c.decidedBy(pol) && !c.needsVetting() && c.decision.rev == c.search.rev
}

// decidePod decides those containers of a pod whose disks are known, and that are not decided by the policy and the request that count.
// Only the budget of the namespace can have no room: a container that it was not asked about gets the room that is left then.
// An error means that ctx ended before.
func (n *Node) decidePod(ctx context.Context, pod podIdentity) (decided bool, _ error) {
	late, isMoved := map[containerRef]*annotation.Error{}, false
	defer func() {
		if isMoved {
			n.noteNamespace(pod)
		}
	}()
	var by *policy.Pod // what the budget of late was asked by
	for ctx.Err() == nil {
		v, pol := n.viewPod(pod), n.policy.Load()
		of := v.request.under(pol)
		if of != by { // there may be another budget, or none
			clear(late)
		}
		by = of
		before := slices.DeleteFunc(slices.Clone(v.containers), func(c snapshot) bool {
			return !c.isDecidable() || !c.disks.Covers(of.Targets()) || c.isDecided(pol)
		})
		if len(before) == 0 {
			return decided, nil
		}
		some := slices.Clone(before)
		for i := range some {
			stage := &some[i].disks.Facts.Stage
			if late[some[i].ref] != nil {
				*stage = policy.Late
			} else if *stage == policy.Late {
				*stage = policy.Running // there may be room now
			}
		}
		p := v.propose(v.request, of, some, n.hasNoWeights(of))
		n.readFormer(&some[0])
		over, err := n.commit(ctx, p, late)
		if err != nil {
			continue
		}
		count := len(some) // that count: those before a late one
		for i := range over {
			if c := over[i].c; over[i].rejects {
				late[c.ref], count = over[i].excess, slices.IndexFunc(some, func(o snapshot) bool { return o.ref == c.ref })
			} else {
				_ = n.exceeded(c, over[i].excess) // the policy lets it run
			}
		}
		for i := range count {
			isMoved = n.noteRule(&before[i], &some[i]) || isMoved
		}
		if decided = decided || count > 0; count == len(some) {
			return decided, nil
		}
	}
	return decided, fmt.Errorf("decide the limits of the pod: %w", context.Cause(ctx))
}

// hasNoWeights reports whether a pod asks for weights that the kernel does not have.
func (n *Node) hasNoWeights(pol *policy.Pod) bool {
	return pol.Targets().Weights && !n.weight.Support().Exist
}

// overBudget is a container for which a budget has no room.
type overBudget struct {
	c       *snapshot
	excess  *annotation.Error
	rejects bool // the policy lets no container run above the budget
}

// commit makes a proposal count for containers of the state, unless the pod has changed. It stops at a container for which the budget
// has to be asked, and has no room, unless the container is in late.
func (n *Node) commit(ctx context.Context, p *proposal, late map[containerRef]*annotation.Error) (over []overBudget, _ error) {
	s := n.state.Lock()
	defer n.state.Unlock()
	if !p.view.isCurrent(s) {
		return nil, errStale
	}
	pod, isStarting, isChanged := p.view.pod.in(s), false, false
	g := pod.group.in(s)
	defer func() {
		if s.recount(g); isChanged { // a late container is decided again and again: that alone changes nothing
			s.changed(g)
		}
	}()
	for i := range p.containers {
		fresh := &p.containers[i]
		c := fresh.in(s)
		if excess := late[c.ref]; excess != nil {
			s.fit(fresh, s.growth(c, fresh))
			fresh.decision.err = p.policy.First(fresh.decision.err, excess)
		} else if excess := s.vet(c, fresh); excess != nil {
			over = append(over, overBudget{fresh, excess, !c.vetted})
			if !c.vetted {
				return over, nil
			}
		}
		isStarting = isStarting || c.start == startUnvetted
		isChanged = isChanged || !fresh.isLate() || !c.isLate() || !fresh.decision.isLike(&c.decision)
		c.disks.Facts.Stage, c.decision = fresh.disks.Facts.Stage, fresh.decision
		s.remember(&c.snapshot)
	}
	if !isStarting { // otherwise it may be refused yet
		pod.total = p.containers[0].decision.total
	}
	if ctx.Err() != nil { // too late for the caller to write the limits
		s.markDirty(g)
	}
	return over, nil
}

// isLike reports whether two decisions are about the same, and set the same values for the same reasons.
func (d *decision) isLike(o *decision) bool {
	return d.policy == o.policy && d.request == o.request && d.rev == o.rev && d.hasValuesOf(o) && keyOf(d.err) == keyOf(o.err) &&
		slices.EqualFunc(d.total, o.total, func(a, b policy.Setting) bool { return a.Value == b.Value })
}

// resolve finds the disks of a container, and decides its pod. The reconciler writes what that changes for other containers.
func (n *Node) resolve(ctx context.Context, of identity) error {
	err := n.find(ctx, of)
	decided, unsettled := n.decidePod(ctx, of.pod)
	if decided {
		n.markDirty(of.pod.group)
	}
	return cmp.Or(err, unsettled)
}

// unresolved returns the containers of a group whose disks have to be searched for, or that have to be decided. hung has the
// containers for which that has been under way for too long.
func (n *Node) unresolved(of groupIdentity, pol *policy.Policy, layers *layerLocations) (out, hung []identity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	return of.in(s).unresolved(pol, layers)
}

func (g *group) unresolved(pol *policy.Policy, layers *layerLocations) (out, hung []identity) {
	for _, pod := range g.pods {
		for _, c := range pod.containers {
			switch {
			case c.isDecided(pol) && c.isFound(soughtBy(c.decision.policy), layers):
			case len(c.token) == 0:
				out = append(out, c.identity)
			case c.hangs():
				hung = append(hung, c.identity)
			}
		}
	}
	return out, hung
}

// resolveAll brings the decisions for a group up to date: it finds disks, decides, and tries edits. Running containers cannot be
// rejected any more, so limits that cannot be enforced are logged and recorded.
func (n *Node) resolveAll(ctx context.Context, g groupIdentity) (errs []error) {
	if err := n.recall(g); err != nil {
		return []error{err} // the annotations are not known yet
	}
	errs = n.decideGroup(ctx, g, false)
	for _, e := range n.edits(g) {
		accepted, err := n.tryEdit(ctx, &e)
		if err != nil {
			errs = append(errs, fmt.Errorf("decide an edit: %w", err))
		}
		if accepted {
			errs = append(errs, n.decideGroup(ctx, g, true)...)
		}
	}
	return errs
}

// decideGroup finds the disks of the containers of a group, and decides its pods, as far as either is due. After an edit, it also
// finds the undeclared disks of all its containers: a "*" may apply to them now.
func (n *Node) decideGroup(ctx context.Context, g groupIdentity, isEdited bool) (errs []error) {
	undeclared := n.undeclared(newSharedReads(&n.environment))
	for again := true; again; {
		unresolved, hung := n.unresolved(g, n.policy.Load(), n.layers.current.Load())
		errs = nil
		for _, c := range hung {
			errs = append(errs, fmt.Errorf("limit container %s: %w", c.name, errNoAnswer))
		}
		var pods []podIdentity
		for _, c := range unresolved {
			if err := n.find(ctx, c); err != nil {
				errs = append(errs, fmt.Errorf("limit container %s: %w", c.name, err))
			}
			if !slices.Contains(pods, c.pod) {
				pods = append(pods, c.pod)
			}
		}
		for _, pod := range pods {
			if _, err := n.decidePod(ctx, pod); err != nil {
				errs = append(errs, err)
			}
		}
		// This comes before any write. After a restart of the plugin the limits are in force, and a plan without the undeclared
		// disks would lift them until the next pass.
		again = false
		if isEdited {
			unresolved, isEdited = nil, false
			for _, c := range n.snapshotsOf(g) {
				unresolved = append(unresolved, c.identity)
			}
		}
		for _, c := range unresolved {
			again = undeclared.compareUse(ctx, c.ref) || again
		}
	}
	return errs
}

// snapshotsOf returns the containers of a group.
func (n *Node) snapshotsOf(of groupIdentity) (out []snapshot) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, pod := range of.in(s).sorted() {
		for _, c := range pod.sorted() {
			out = append(out, c.snapshot)
		}
	}
	return out
}
