package node

import (
	"maps"

	"github.com/nri-blkio/nri-blkio/policy"
)

// The claims of a pod are facts about it, as its labels are: the API server alone knows them. A claim is known when the
// cluster part has described the pod. Until then, and while the cluster part is away, limits of claims that are in force
// stay in force.

// claims returns the claims of a pod. Those that were known before hold while the API server does not know them.
func (l *Live) claims(known *policy.Claims) *policy.Claims {
	if l.Claims == nil {
		return known
	}
	return l.Claims
}

// factsNow returns the facts about the pod of a sandbox: those that count, or those of the runtime and of the API server if
// nothing concerns the pod yet.
func (n *Node) factsNow(sb *Sandbox) policy.PodFacts {
	s := n.state.Lock()
	defer n.state.Unlock()
	if p := s.pods[sb.ID]; p != nil {
		return s.factsOf(p)
	}
	return s.withLive(sb.Facts(), sb.UID, sb.Name)
}

// factsOf is factsNow for a pod of the state.
func (s *state) factsOf(p *pod) policy.PodFacts {
	facts := p.request.now.Load().facts
	if s.concerns(p.group.in(s)) {
		return facts
	}
	return s.withLive(facts, p.uid, p.name)
}

// withLive returns facts with those that the API server knows.
func (s *state) withLive(facts policy.PodFacts, uid, name string) policy.PodFacts {
	if live, known := s.liveOf(uid, facts.Namespace, name); known {
		facts.Labels, facts.Claims = live.labels(facts.Labels), live.Claims
		facts.NamespaceLabels = policy.KnownLabels(live.NamespaceLabels, s.namespaceKeys)
	}
	return facts
}

// followFacts has a request follow the labels and the claims that the API server knows.
func (r *request) followFacts(live *Live) *request {
	next := r.facts
	next.Labels, next.Claims = live.labels(r.facts.Labels), live.claims(r.facts.Claims)
	if maps.Equal(next.Labels, r.facts.Labels) && next.Claims.Equal(r.facts.Claims) {
		return r
	}
	return r.withFacts(&next)
}

// hasFacts reports whether two requests are by the same labels and claims, and by the same labels of the namespace.
func (r *request) hasFacts(o *request) bool {
	return maps.Equal(r.facts.Labels, o.facts.Labels) && r.facts.Claims.Equal(o.facts.Claims) &&
		r.facts.NamespaceLabels.Equal(o.facts.NamespaceLabels)
}

// mayTakeMore reports whether other labels or claims can take more of a budget. Known claims without limits of their own cannot,
// instead of others. While claims are unknown, limits of them can be in force, and annotations that name one do not count.
func (r *request) mayTakeMore(o *request) bool {
	return !maps.Equal(r.facts.Labels, o.facts.Labels) || r.facts.Claims.Known() != o.facts.Claims.Known() ||
		r.facts.Claims.HasLimits() || o.facts.Claims.HasLimits()
}
