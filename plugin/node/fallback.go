package node

import (
	"context"

	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// The annotations that the API server has for a new pod count instead of those that the runtime reports, if they are known
// before its first container. But they come from a process that is not trusted, and must not keep a pod from starting that
// starts with those of the runtime.

// refusesRequest returns an error because of which the request of a new container would be rejected as an edit, or nil.
func (c *snapshot) refusesRequest() error {
	if err := c.decision.refusesEdit(); err != nil {
		return err
	}
	return c.decision.request.refusedBy(c.decision.policy.Of())
}

// fallBack has the request that the runtime reported for a new pod count again, if the pod's first container is rejected by
// the annotations that the API server has, and not by those of the runtime. The former become an edit, which is tried once the
// pod has the container. excess is the error of the budget, if there is one. It returns true if another request counts now.
func (n *Node) fallBack(ctx context.Context, c *snapshot, ctr *Container, excess *annotation.Error) bool {
	reported := n.pods.reportedOf(c.pod, c.decision.request)
	switch {
	case reported.next == nil:
		return false
	case excess != nil:
		if !refusesEdit(c.decision.policy, excess) {
			return false
		}
	case c.refusesRequest() == nil:
		return false
	}
	by, err := n.decideBy(ctx, c.pod, ctr, reported.next)
	if err != nil || plan.Refuses(by.decision.policy, by.decision.err) {
		return false
	}
	n.readFormer(&by)
	if over := n.pods.excess(&by); over != nil && plan.Refuses(by.decision.policy, over) {
		return false
	}
	n.pods.returnTo(c.pod, c.decision.request, reported.next)
	return true
}

// reportedOf returns an edit that returns to the request of a pod as the runtime reported it, with the facts about the
// pod that count. It has none if a container of the pod was decided by another one, or if it is the same.
func (t *podTable) reportedOf(of podIdentity, now *request) edit {
	s := t.state.Lock()
	defer t.state.Unlock()
	reported := of.in(s).reported
	if reported == nil || now.isLike(reported) {
		return edit{}
	}
	if !reported.hasFacts(now) {
		reported = reported.withFacts(&now.facts)
	}
	return edit{next: reported}
}

// returnTo replaces the request of a pod by the one that the runtime reported, unless it has changed meanwhile or the pod has
// a container.
func (t *podTable) returnTo(of podIdentity, from, reported *request) {
	s := t.state.Lock()
	defer t.state.Unlock()
	p := of.in(s)
	if p.reported == nil || p.request.now.Load() != from {
		return
	}
	s.replaceAnnotations(p, reported)
	p.reported, p.edit.waits = nil, true
	if p.edit.next == nil { // otherwise there is a newer edit
		p.edit.next = from
	}
}
