package node

import (
	"errors"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Only the API server knows the labels of a namespace. They come with the document that the cluster part writes for each pod, a
// moment after the pod's sandbox. A request keeps those by which rules of the policy select, so other labels may change without
// any work.

// inNamespace returns a request with these labels of the namespace.
func (r *request) inNamespace(labels policy.NamespaceLabels) *request {
	facts := r.facts
	facts.NamespaceLabels = labels
	return r.withFacts(&facts)
}

// followNamespace has a pod follow the labels of its namespace at once, as it follows a new policy. The administrator of the
// cluster sets both. The author of the pod sets neither.
func (s *state) followNamespace(p *pod, live *Live) {
	labels, now := policy.KnownLabels(live.NamespaceLabels, s.namespaceKeys), p.request.now.Load()
	if labels == nil {
		return
	}
	if !labels.Equal(now.facts.NamespaceLabels) {
		s.replaceRequest(p, now.inNamespace(labels))
	}
	if next := p.edit.next; next != nil && !labels.Equal(next.facts.NamespaceLabels) {
		p.edit.next = next.inNamespace(labels) // or the edit would bring back those before
		if p.edit.reported == next {
			p.edit.reported = p.edit.next
		}
		if p.notedEdit.next == next {
			p.notedEdit.next = p.edit.next
		}
	}
}

// inheritNamespace gives a new sandbox the labels of its namespace that an earlier sandbox of the pod has.
func (s *state) inheritNamespace(p *pod) {
	for _, o := range p.group.in(s).pods {
		if labels := o.request.now.Load().facts.NamespaceLabels; labels != nil && o.uid == p.uid && o.namespace == p.namespace {
			p.request.now.Store(p.request.now.Load().inNamespace(labels))
			return
		}
	}
}

// selectNamespaces has requests keep the labels of namespaces by which the rules of a new policy select, before it comes into force.
// Those of the policy before stay as well: a container may still be decided by it. Records keep the kinds of containers in the same way.
func (t *podTable) selectNamespaces(former, next *policy.Policy) {
	s := t.state.Lock()
	defer t.state.Unlock()
	s.namespaceKeys, s.recordedKinds = nil, nil
	for _, pol := range []*policy.Policy{former, next} {
		if pol == nil {
			continue
		}
		s.recordedKinds = append(s.recordedKinds, pol.ContainerKinds()...)
		if keys := pol.NamespaceKeys(); keys != nil {
			if s.namespaceKeys == nil {
				s.namespaceKeys = []string{} // an empty selector has no keys
			}
			s.namespaceKeys = append(s.namespaceKeys, keys...)
		}
	}
	slices.Sort(s.namespaceKeys)
	s.namespaceKeys = slices.Compact(s.namespaceKeys)
	if s.namespaceKeys != nil {
		s.reviseAll()
	}
}

// unlabelled follows pods whose namespace has unknown labels that rules need. Only the reconciler uses it.
type unlabelled struct {
	since   map[string]time.Time // by sandbox
	problem reminder.Reminder
}

var errUnlabelled = errors.New("the cluster part (run --only cluster) does not run on this node, or has not described these pods")

// warnUnlabelled logs an error about pods that lack labels of their namespaces for longer than from one resync to the next. A new
// pod has them a moment after its sandbox.
func (n *Node) warnUnlabelled() {
	now, since := time.Now(), map[string]time.Time{}
	lasting, example := 0, ""
	for _, p := range n.lackingLabels() {
		began, known := n.unlabelled.since[p.ID]
		if !known {
			began = now
		}
		if since[p.ID] = began; now.Sub(began) >= n.resync {
			lasting, example = lasting+1, p.Namespace+"/"+p.Name
		}
	}
	n.unlabelled.since = since
	var err error
	if lasting > 0 {
		err = errUnlabelled
	}
	if n.unlabelled.problem.Due(now, err) {
		n.log.WithError(err).WithField("pods", lasting).WithField("pod", example).Error("Labels of namespaces are unknown: rules with namespaceSelector do not match their pods")
	}
}

// lackingLabels returns the sandboxes whose rule is not certain, because labels of their namespaces are unknown.
func (n *Node) lackingLabels() (out []Sandbox) {
	pol := n.policy.Load()
	keys := pol.NamespaceKeys()
	if keys == nil {
		return nil
	}
	for _, p := range n.pods.withoutLabels(keys) {
		if pol.LacksNamespaceLabels(&p.facts) {
			out = append(out, p.sandbox)
		}
	}
	return out
}

// podFacts has the names of a sandbox, and the facts about its pod.
type podFacts struct {
	sandbox Sandbox
	facts   policy.PodFacts
}

// withoutLabels returns the sandboxes that have containers, and whose namespace has unknown labels with some of these keys.
func (t *podTable) withoutLabels(keys []string) (out []podFacts) {
	s := t.state.Lock()
	defer t.state.Unlock()
	for _, p := range s.pods {
		if facts := p.request.now.Load().facts; p.hasLiveContainer() && !facts.NamespaceLabels.Know(keys) {
			out = append(out, podFacts{Sandbox{ID: p.id, Namespace: p.namespace, Name: p.name}, facts})
		}
	}
	for _, b := range s.bystanders {
		live, _ := s.liveOf(b.sandbox.UID, b.sandbox.Namespace, b.sandbox.Name)
		if live.NamespaceLabels == nil && len(b.containers) > 0 {
			facts := b.sandbox.Facts()
			facts.Labels = live.labels(b.sandbox.Labels)
			out = append(out, podFacts{b.sandbox, facts})
		}
	}
	return out
}
