package node

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Only the API server knows the labels of a namespace. They come with the document that the cluster part writes for each pod, a
// moment after the pod's sandbox. A request keeps those by which rules of the policy select.

// followNamespace has a pod follow the labels of its namespace at once, as it follows a new policy. The administrator of the
// cluster sets both. The author of the pod sets neither. all is nil while they are unknown.
func (s *state) followNamespace(p *pod, all map[string]string) {
	now := p.request.now.Load()
	if next := now.InNamespace(all, s.namespaceKeys); next != now {
		s.replaceRequest(p, next)
	}
	if p.edit.next != nil {
		p.edit.next = p.edit.next.InNamespace(all, s.namespaceKeys) // or the edit would bring back those before
	}
}

// inheritNamespace gives a new sandbox the labels of its namespace that an earlier sandbox of the pod has.
func (s *state) inheritNamespace(p *pod) {
	for _, o := range p.group.in(s).pods {
		if o.uid == p.uid && o.namespace == p.namespace {
			p.request.now.Store(p.request.now.Load().With(o.request.now.Load(), podfacts.Namespace))
		}
	}
}

// selectNamespaces has requests keep the labels of namespaces by which the rules of a new policy select, before it comes into force.
// Those of the policy before stay as well: a container may still be decided by it.
func (n *Node) selectNamespaces(former, next *policy.Policy) {
	keys := next.NamespaceKeys()
	if former != nil && former.NamespaceKeys() != nil { // an empty selector has no keys
		keys = append(former.NamespaceKeys(), keys...)
	}
	slices.Sort(keys)
	s := n.state.Lock()
	defer n.state.Unlock()
	if s.namespaceKeys = slices.Compact(keys); keys != nil {
		s.reviseAll()
	}
}

// noteRule logs that a running container has other limits because its pod follows changed labels of the namespace.
func (n *Node) noteRule(before, now *snapshot) {
	if now.followsNamespace(before) {
		now.logger(n.log).WithField("limits", describe(now.decision.desired)).Info("A running container follows changed labels of its namespace")
	}
}

// followsNamespace reports whether a running container has other limits than before because its pod follows changed labels of the
// namespace.
func (c *snapshot) followsNamespace(before *snapshot) bool {
	former, by := before.decision.request, c.decision.request
	return former != nil && !former.NamespaceLabels.Equal(by.NamespaceLabels) && c.mayRun() && !c.decision.hasValuesOf(&before.decision)
}

// isMoved reports whether a running container got other limits by an edit of the namespace's labels. Labels that were unknown
// were not edited, and a new policy selects by other labels.
func (n *Node) isMoved(before, now *snapshot) bool {
	if before.decision.request != nil {
		return now.followsNamespace(before) && before.decision.request.NamespaceLabels != nil &&
			before.decision.policy.Of() == now.decision.policy.Of()
	}
	s := n.state.Lock()
	defer n.state.Unlock()
	p := now.pod.in(s)
	isMoved := p.isMoved && now.mayRun() && len(now.decision.desired.Settings) > 0
	p.isMoved = p.isMoved && !isMoved
	return isMoved
}

// noteNamespaces notes that pods follow changed labels of their namespace, with the rule that is in force now.
func (n *Node) noteNamespaces(moved []podIdentity) {
	for _, of := range moved {
		rule := "no rule"
		if name := of.request.now.Load().Under(n.policy.Load()).Rule(); name != "" {
			rule = "rule " + quote.Name(name, quote.Most)
		}
		n.noteApplied(&of, "edited labels of the namespace apply, by which "+rule+" is in force", n.containersOf(of))
	}
}

// hasValuesOf reports whether two decisions set the same values. It ignores the sources of the values.
func (d *decision) hasValuesOf(o *decision) bool {
	return slices.EqualFunc(d.desired.Settings, o.desired.Settings, func(a, b policy.Setting) bool { return a.Value == b.Value })
}
