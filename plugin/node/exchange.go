package node

import (
	"maps"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

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
	if excess := s.exchange(pod, p); excess != nil {
		return excess, nil
	}
	if p.request.hasOtherAnnotations(p.view.request) {
		s.replaceAnnotations(pod, p.request)
	} else {
		s.replaceRequest(pod, p.request)
	}
	if p.request == e.next {
		pod.edit = edit{}
	} else {
		pod.edit.err, pod.edit.isRejected = nil, false // of what is left
		pod.group.in(s).told.forget(changeRejected, pod.ref)
	}
	for i := range p.containers {
		c := p.containers[i].in(s)
		c.disks, c.layer = p.containers[i].disks, p.containers[i].layer
		s.remember(&c.snapshot)
	}
	s.revise(pod) // annotations may be unknown, and only facts have changed
	return nil, nil
}

// exchange replaces the decisions for the containers of a pod and the limits of the pod as a whole, unless the budget has no room
// for the new ones. It asks the budget only where the pod is granted more than before: lower limits always count, also while more
// is granted than the budget.
func (s *state) exchange(p *pod, found *proposal) *annotation.Error {
	if len(found.containers) == 0 {
		return nil
	}
	g, b := p.group.in(s), found.containers[0].decision.policy.Budget()
	former, total, granted := make([]decision, len(found.containers)), p.total, g.recorded.granted
	before := s.grants(g, p.namespace, b)
	var asking, raised []*snapshot
	for i := range found.containers {
		c := found.containers[i].in(s)
		former[i], c.decision = c.decision, found.containers[i].decision
		switch {
		case !c.isLive():
		case c.decision.raises(b, &former[i]): // last, so that an error names one of them
			raised = append(raised, &c.snapshot)
		default:
			asking = append(asking, &c.snapshot)
		}
	}
	p.total = found.containers[0].decision.total // which is the same for all of them
	if found.request.hasOtherAnnotations(found.view.request) {
		g.recorded.granted = policy.Desired{} // the next plan has it again
	}
	for i := range found.containers { // a late container gets the room that the new decisions leave
		if c := found.containers[i].in(s); b != nil && c.needsVetting() && c.isLate() {
			s.fit(&c.snapshot, nil)
		}
	}
	after := s.grants(g, p.namespace, b)
	maps.DeleteFunc(after, func(at blkio.Address, amount blkio.Amount) bool { return amount <= before[at] })
	var excess *annotation.Error
	if len(after) > 0 {
		// An error of the budget is one of an invalid request, which rejects an edit under each policy.
		excess = s.excess(append(asking, raised...), func(at blkio.Address) bool { return after[at] > 0 })
	}
	if excess == nil {
		return nil
	}
	g.recorded.granted = granted
	for i := range found.containers {
		found.containers[i].in(s).decision = former[i]
	}
	p.total = total
	return excess
}

// grants returns what the pod of a group is granted of a budget on each physical disk. The budget may be nil.
func (s *state) grants(g *group, namespace string, b *policy.NamespaceBudget) map[blkio.Address]blkio.Amount {
	out := map[blkio.Address]blkio.Amount{}
	if b == nil {
		return out
	}
	share, _ := g.share(namespace, b, none)
	for _, p := range share.Portions() {
		out[p.Address] = p.Known
	}
	return out
}

// raises reports whether a container is granted more of a budget by a decision than by the former one.
func (d *decision) raises(b *policy.NamespaceBudget, former *decision) (more bool) {
	before := map[blkio.Address]blkio.Amount{}
	former.desired.Charges(b, func(at blkio.Address, amount blkio.Amount) { before[at] = amount })
	d.desired.Charges(b, func(at blkio.Address, amount blkio.Amount) { more = more || amount > before[at] })
	return more
}
