package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
	"github.com/nri-blkio/nri-blkio/plugin/node/layers"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
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
	containers []*snapshot // with their new decisions
}

// propose decides containers of a pod as a whole. Each is passed with the disks and the stage by which it is decided. It changes
// nothing, and reads nothing of the node.
func (v *podView) propose(by *podfacts.Request, pol *policy.Pod, containers []*snapshot, missing []string) proposal {
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
	out := proposal{view: v, request: by, policy: pol, containers: containers}
	decided := grant.Decide(&in)
	for i, c := range containers {
		d := &decided.Containers[i]
		c.decision = &decision{
			policy: pol, request: by, rev: c.search.rev, desired: d.Desired, lends: pol.Lends(&in.Containers[i].Facts, &d.Desired),
			err: d.Err, total: decided.Total.Settings,
		}
	}
	return out
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

// decidePod decides those containers of a pod whose disks are known, and that are not decided by the policy and the request that count.
// Only the budget of the namespace can have no room: a container that it was not asked about gets the room that is left then.
// An error means that ctx ended before.
func (n *Node) decidePod(ctx context.Context, pod podIdentity) (decided bool, _ error) {
	over, isMoved := map[containerRef]*annotation.Error{}, false // late containers, with the reasons
	defer func() {
		if isMoved {
			n.noteNamespace(pod)
		}
	}()
	var by *policy.Pod // what the budget of over was asked by
	for ctx.Err() == nil {
		v, pol := n.viewPod(pod), n.policy.Load()
		of := v.request.Under(pol)
		if of != by { // there may be another budget, or none
			clear(over)
		}
		by = of
		before := slices.DeleteFunc(slices.Clone(v.containers), func(c snapshot) bool {
			return !c.isDecidable() || !c.disks.Covers(of.Targets()) || c.isDecided(pol)
		})
		if len(before) == 0 {
			return decided, nil
		}
		some := copies(before)
		for _, c := range some {
			if over[c.ref] != nil {
				c.vetting = late
			} else if c.isLate() {
				c.vetting = unvetted // there may be room now
			}
		}
		p := v.propose(v.request, of, some, n.controls.Missing())
		n.readGranted(some[0])
		exceeding, err := n.commit(ctx, &p, over)
		if err != nil {
			continue
		}
		count := len(some) // that count: those before a late one
		for i := range exceeding {
			if c := exceeding[i].c; exceeding[i].rejects {
				over[c.ref], count = exceeding[i].excess, slices.IndexFunc(some, func(o *snapshot) bool { return o.ref == c.ref })
			} else {
				_ = n.exceeded(c, exceeding[i].excess) // the policy lets it run
			}
		}
		for i := range count {
			isMoved = n.noteRule(&before[i], some[i]) || isMoved
		}
		if decided = decided || count > 0; count == len(some) {
			return decided, nil
		}
	}
	return decided, fmt.Errorf("decide the limits of the pod: %w", context.Cause(ctx))
}

// isLike reports whether two decisions are about the same, and set the same values for the same reasons.
func (d *decision) isLike(o *decision) bool {
	return d.policy == o.policy && d.request == o.request && d.rev == o.rev && d.hasValuesOf(o) && cause.KeyOf(d.err) == cause.KeyOf(o.err) &&
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
func (n *Node) unresolved(of groupIdentity, pol *policy.Policy, now *layers.Locations) (out, hung []identity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	return of.in(s).unresolved(pol, now)
}

func (g *group) unresolved(pol *policy.Policy, now *layers.Locations) (out, hung []identity) {
	for _, pod := range g.pods {
		for _, c := range pod.containers {
			switch {
			case c.isDecided(pol) && c.isFound(soughtBy(c.decision.policy), now):
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
		unresolved, hung := n.unresolved(g, n.policy.Load(), n.layers.Current())
		errs = nil
		for _, c := range hung {
			errs = append(errs, fmt.Errorf("limit container %s: %w", c.name, cause.ErrNoAnswer))
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
	for _, pod := range of.in(s).pods {
		for _, c := range pod.containers {
			out = append(out, c.snapshot)
		}
	}
	return out
}
