package node

import (
	"github.com/nri-blkio/nri-blkio/policy"
)

// The runtime does not report which containers of a pod are init containers. They come with the document that the cluster part
// writes for each pod, which may be later than the first container: it has the class for all containers until then. The author
// of a pod chooses the kinds, so they count as labels of the pod do: a class that takes more of the budget of the namespace
// needs room there. An ephemeral container that is added changes no other one, so it counts at once.

// kinds returns the kinds of a pod's containers. Those that were known before hold while the API server does not know them.
func (l *Live) kinds(known policy.ContainerKinds) policy.ContainerKinds {
	if l.Kinds == nil {
		return known
	}
	return l.Kinds
}

// withKinds returns a request with these kinds of containers.
func (r *request) withKinds(kinds policy.ContainerKinds) *request {
	facts := r.facts
	facts.Kinds = kinds
	return r.withFacts(&facts)
}

// changesKind reports whether a request has another kind for a live container than the one that counts.
func (p *pod) changesKind(next *request) bool {
	before := p.request.now.Load().facts.Kinds
	for _, c := range p.containers {
		if c.isLive() && before[c.name] != next.facts.Kinds[c.name] {
			return true
		}
	}
	return false
}

// kind returns the kind of a container by which it was decided.
func (d *decision) kind(container string) policy.ContainerKind {
	if d.request == nil {
		return ""
	}
	return d.request.facts.Kinds[container]
}
