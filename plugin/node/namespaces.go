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

// noteRule logs that a running container has other limits because its pod follows changed labels of the namespace. It reports whether
// these were edited: labels that were unknown were not, and a new policy selects by other labels. A bystander had no policy.
func (n *Node) noteRule(before, now *snapshot) (isEdited bool) {
	former, by := before.decision.request, before.decision.policy
	if former == nil || former.NamespaceLabels.Equal(now.decision.request.NamespaceLabels) || !now.mayRun() || now.decision.hasValuesOf(before.decision) {
		return false
	}
	now.logger(n.log).WithField("limits", describe(now.decision.desired)).Info("A running container follows changed labels of its namespace")
	return former.NamespaceLabels != nil && (by == nil || by.Of() == now.decision.policy.Of())
}

// noteNamespace notes that a pod follows changed labels of its namespace, with the rule that is in force now.
func (n *Node) noteNamespace(of podIdentity) {
	rule := "no rule"
	if name := of.request.now.Load().Under(n.policy.Load()).Rule(); name != "" {
		rule = "rule " + quote.Name(name, quote.Most)
	}
	n.noteApplied(&of, "edited labels of the namespace apply, by which "+rule+" is in force")
}

// hasValuesOf reports whether two decisions set the same values. It ignores the sources of the values.
func (d *decision) hasValuesOf(o *decision) bool {
	return slices.EqualFunc(d.desired.Settings, o.desired.Settings, func(a, b policy.Setting) bool { return a.Value == b.Value })
}
