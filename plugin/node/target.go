package node

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file plans the values of a group's cgroups by a view of the state.

// planFor returns the plan for a group's cgroups. The time to decide the pod total grows with the text of
// tenants, so this happens without the lock. The caller holds the group's token.
func (n *Node) planFor(of groupIdentity) *enforce.Targets {
	if known := n.planOf(of); known != nil {
		return known
	}
	unread := n.recall(of) // a plan without the record's values would remove them; inspect reports the error
	v := n.viewOf(of)
	if pol := n.policy.Load(); v.pod.isNone() {
		v.Pod.Policy = pol.ForPod(nil, nil)
	} else {
		v.Pod.Policy = v.request.Under(pol) // may parse the annotations, so without the lock
	}
	fresh := enforce.NewTargets(plan.New(v.View), of.written)
	n.notePlan(&v, fresh, unread == nil)
	return fresh
}

// notePlan notes the plan of a view of a group. It keeps the plan if the view was complete and the group has
// not changed since.
func (n *Node) notePlan(v *view, fresh *enforce.Targets, complete bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := v.group.in(s)
	granted := fresh.Pod.Granted
	if v.shared { // the cgroup has no limits until the other pod has left
		granted = g.recorded.granted.OnlyCarried()
	}
	g.recorded.granted, g.recorded.weights = granted, fresh.Pod.Weights
	s.recount(g)
	if complete && g.changes == v.changes {
		g.plan = fresh
	}
}

// planOf returns the plan of a group, nil after a change.
func (n *Node) planOf(g groupIdentity) *enforce.Targets {
	s := n.state.Lock()
	defer n.state.Unlock()
	return g.in(s).plan
}

func (n *Node) viewOf(g groupIdentity) view {
	controls := n.controls.Effect() // may read a file
	s := n.state.Lock()
	defer n.state.Unlock()
	v := s.view(g.in(s))
	v.Controls = controls
	return v
}

// view is a copy of the facts from which a plan is made.
type view struct {
	plan.View
	group   groupIdentity
	pod     podIdentity       // the pod that has the pod's cgroup now; none without a pod
	request *podfacts.Request // of pod
	shared  bool              // other pods are in the pod's cgroup
	changes int
}

// view returns a view of a group.
func (s *state) view(g *group) view {
	v := view{group: g.groupIdentity, shared: g.shared(), changes: g.changes}
	v.Drained = g.drain.Phase() == lifecycle.Drained
	live := false
	var last *podfacts.Edit
	for _, pod := range g.sorted() {
		before := len(v.Running)
		v.Running = slices.Grow(v.Running, len(pod.containers))
		for _, c := range pod.sorted() {
			if c.mayRun() {
				v.Running = append(v.Running, c.planned())
			}
			v.Partial = v.Partial || c.isPartial()
		}
		// Of two sandboxes of a pod the later one counts, once a container of it has started.
		if begun := len(v.Running) > before; begun || !live {
			live = live || begun
			v.Pod, v.pod, v.request = pod.planned(), pod.podIdentity, pod.request.now.Load()
			v.Pod.Seen, v.Pod.Complete = policy.UnlessAllRejected(pod.seen()), pod.isComplete
			v.Pod.Begun, v.Pod.Granted = begun, g.grantedTo(pod)
			v.Pod.Live = plan.Live{Rejected: pod.edit.err, Unknown: pod.edit.unknown}
		}
		if edit := pod.request.now.Load().Edit(pod.id); edit != nil {
			last = edit
		}
	}
	// The record has room for one edit. That of the last sandbox is the one that a restarted plugin needs: containers of
	// the others have been decided, and have records of their own.
	v.Pod.Live.Edit = last
	v.Pod.Exits = g.recorded.exits
	if !v.shared && !v.pod.isNone() {
		v.Pod.Cgroup = v.group.cgroup
	}
	return v
}

// planned returns the facts about a pod that a plan needs, without its containers and its policy.
func (p *podIdentity) planned() plan.Pod {
	return plan.Pod{Namespace: p.namespace, Name: p.name, UID: p.uid}
}

// planned returns the facts about a container that a plan needs.
func (c *snapshot) planned() plan.Container {
	return plan.Container{
		ID: c.id, Name: c.name, Cgroup: c.cgroup, Desired: c.inForce(), Lent: c.pod.lent.Load().Noted(), Policy: c.decision.policy,
		Err: c.decision.err, Spec: c.spec,
		Gaps: plan.Gaps{Undecided: c.decision.policy == nil, Partial: c.isPartial()}, Unvetted: c.needsVetting(),
	}
}
