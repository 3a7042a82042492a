package node

import (
	"maps"

	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// The runtime reports a pod as it was when its sandbox was made. The API server knows the pod as it is now. A live change
// is a difference between the two that appears while the pod runs.

// Live has what the API server knows now about a pod.
type Live struct {
	Namespace, Name string
	// Annotations are those of this domain. They replace those that the runtime reported.
	Annotations map[string]string
	// Labels replace those that the runtime reported. They are nil if they are unknown.
	Labels map[string]string
	// Err is the reason why the annotations are unknown, and nil if they are known.
	Err error
}

// labels returns the labels of a pod. The runtime reports some that are not of the pod itself: its namespace, name and
// UID.
func (l *Live) labels(reported map[string]string) map[string]string {
	if l.Labels == nil {
		return reported
	}
	out := maps.Clone(l.Labels)
	for _, key := range []string{"io.kubernetes.pod.namespace", "io.kubernetes.pod.name", "io.kubernetes.pod.uid"} {
		if value, found := reported[key]; found {
			out[key] = value
		}
	}
	return out
}

// SetLive notes what the API server knows now about the pod with a UID, whose values must not change afterwards. The
// pod need not exist yet. Nil forgets it, with an edit that does not count yet; what is in force stays in force. SetLive
// reads nothing of the node: the reconciler puts changes into force.
func (n *Node) SetLive(uid string, live *Live) {
	if live == nil {
		n.pods.forgetLive(uid)
		return
	}
	kept := *live
	if live.Labels != nil {
		kept.Labels, _, _ = keptLabels(live.Labels, n.policy.Load())
	}
	n.pods.setLive(uid, kept)
	n.admitBystandersIf(func(sb *Sandbox) bool { return sb.UID == uid && n.concernsLive(sb) })
}

func (t *podTable) forgetLive(uid string) {
	s := t.state.Lock()
	defer t.state.Unlock()
	delete(s.live, uid)
	for _, p := range s.pods {
		if p.uid == uid && p.edit != (edit{}) { // a restarted process would not know it either
			p.edit = edit{}
			s.markDirty(p.group.in(s))
		}
	}
}

func (t *podTable) setLive(uid string, live Live) {
	s := t.state.Lock()
	defer t.state.Unlock()
	s.live[uid] = live
	for _, pod := range s.pods {
		if pod.uid == uid {
			s.revise(pod)
		}
	}
}

// concernsLive reports whether a sandbox concerns the plugin by what the API server knows about its pod.
func (n *Node) concernsLive(sb *Sandbox) bool {
	live, known := n.pods.liveOf(sb)
	if !known {
		return false
	}
	facts := FactsOf(sb.Namespace, live.labels(sb.Labels), sb.Handler, sb.Cgroup)
	return annotation.Concerns(live.Annotations) || n.policy.Load().Concerns(&facts)
}

func (t *podTable) liveOf(sb *Sandbox) (Live, bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	return s.liveOf(sb.UID, sb.Namespace, sb.Name)
}

// hasLive reports whether the API server knows anything about a pod.
func (t *podTable) hasLive() bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	return len(s.live) > 0
}

// liveOf returns what the API server knows about a pod. The names are compared as well: a mistake there must not give a
// pod the limits of another tenant.
func (s *state) liveOf(uid, namespace, name string) (_ Live, known bool) {
	live, known := s.live[uid]
	if !known || live.Namespace != namespace || live.Name != name {
		return Live{}, false
	}
	return live, true
}

// revise has a pod follow what the API server knows about it. Labels count at once, as a new policy does, unless the namespace
// may have a budget: then they are tried like annotations, because the author of a pod decides them. Annotations
// count at once if the pod has had no container: its creation rejects what is invalid. Otherwise the reconciler tries them
// first (Node.tryEdit), also between two containers: the next one would start without the former limits.
func (s *state) revise(p *pod) {
	live, known := s.liveOf(p.uid, p.namespace, p.name)
	if !known {
		return
	}
	had, now := p.edit, p.request.now.Load()
	before := had
	next := now
	if labels := live.labels(now.facts.Labels); !maps.Equal(labels, now.facts.Labels) {
		next = now.withLabels(labels)
		if !p.mayHaveBudget() {
			s.replaceRequest(p, next)
			before.next, now = nil, next
		}
	}
	if live.Err == nil && !now.has(live.Annotations) {
		next = next.with(live.Annotations)
	}
	switch {
	case next == now:
		p.edit = edit{}
		if live.Err != nil {
			p.edit.err = rejected(live.Err)
		}
	case before.next.isLike(next):
	case p.isNew && len(p.known) == 0 && len(p.containers) == 0:
		p.edit = edit{}
		s.replaceAnnotations(p, next)
	default:
		p.edit = edit{next: next, err: before.err}
	}
	if p.edit != had {
		s.markDirty(p.group.in(s))
	}
}

// mayHaveBudget reports whether a container of the pod counts for a budget, as far as that is known.
func (p *pod) mayHaveBudget() bool {
	for _, c := range p.containers {
		if c.isLive() && (c.decision.policy == nil || c.decision.policy.Budget() != nil) {
			return true
		}
	}
	return false
}

// replaceRequest replaces the request of a pod. Its containers are decided again. What was known about other containers
// is forgotten, because their disks were not found for the new targets.
func (s *state) replaceRequest(p *pod, r *request) {
	p.request.now.Store(r)
	there := map[string]bool{}
	for _, c := range p.containers {
		there[c.name] = there[c.name] || c.isLive()
	}
	maps.DeleteFunc(p.known, func(name string, _ knownFacts) bool { return !there[name] })
	p.warned = false // targets may be others
	s.markDirty(p.group.in(s))
}

// replaceAnnotations replaces the request of a pod by one with other annotations. What the pod as a whole was granted by
// those before does not count for entries that are rejected now.
func (s *state) replaceAnnotations(p *pod, r *request) {
	s.replaceRequest(p, r)
	g := p.group.in(s)
	g.recorded.granted, g.recorded.isOutdated = policy.Desired{}, true
}

// reviseAll has all pods follow what the API server knows about them.
func (s *state) reviseAll() {
	if len(s.live) == 0 {
		return
	}
	for _, pod := range s.pods {
		s.revise(pod)
	}
}

// withLive returns the sandbox of a bystander with its labels as they are now.
func (s *state) withLive(sb Sandbox) Sandbox {
	if live, known := s.liveOf(sb.UID, sb.Namespace, sb.Name); known {
		sb.Labels = live.labels(sb.Labels)
	}
	return sb
}

// isOf reports whether the request is still the one of its pod.
func (r *request) isOf(p *podIdentity) bool { return p.request.now.Load() == r }

// decidedBy reports whether the limits of the container were decided by this policy and the request of its pod.
func (c *snapshot) decidedBy(pol *policy.Policy) bool {
	return c.decision.policy.Of() == pol && c.decision.request.isOf(&c.pod)
}
