package node

import (
	"fmt"
	"maps"
	"strings"
	"time"

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
	// NamespaceLabels are all labels of its namespace. They are nil if they are unknown.
	NamespaceLabels map[string]string
	// OnlyNamespace is true if all but the labels of its namespace is still unknown.
	OnlyNamespace bool
	// Claims are those of the pod's volumes. They are nil if they are unknown.
	Claims *policy.Claims
	// Err is the reason why the annotations are unknown, and nil if they are known.
	Err error
	// CanBeKnown reports whether annotations of a pod would be known, with Err. Those that the runtime reported were
	// edited if they would be. If it is nil, they were.
	CanBeKnown func(annotations map[string]string) bool
}

// isEdited reports whether annotations that the API server has, and that are unknown, are others than those of a request.
// Only if the request has such annotations itself, it is not known whether they are.
func (l *Live) isEdited(now *request) bool {
	return now.edited.annotations || now.annotations != nil && (l.CanBeKnown == nil || l.CanBeKnown(now.annotations))
}

// runtimeLabels is the prefix of labels that the runtime reports and that are not of the pod itself, such as its name and
// UID. CRI-O adds others than containerd.
const runtimeLabels = "io.kubernetes."

// labels returns the labels of a pod: those of the API server, and those that only the runtime has.
func (l *Live) labels(reported map[string]string) map[string]string {
	if l.Labels == nil {
		return reported
	}
	out := maps.Clone(l.Labels)
	for key, value := range reported {
		if strings.HasPrefix(key, runtimeLabels) {
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
		n.forgetLive(uid)
		return
	}
	kept := *live
	if live.Labels != nil {
		kept.Labels, _ = keptLabels(live.Labels, n.policy.Load())
	}
	if live.Err == nil && newRequest(policy.PodFacts{}, live.Annotations).annotations == nil {
		// A request does not keep them, so it would differ from them after each edit.
		kept.Annotations, kept.Err = nil, fmt.Errorf("the annotations are longer than %d bytes", annotationRoom)
	}
	former, bystanding := n.noteLive(uid, kept)
	n.findConcerned(bystanding, former)
}

func (n *Node) forgetLive(uid string) {
	s := n.state.Lock()
	defer n.state.Unlock()
	delete(s.live, uid)
	for _, p := range s.byUID[uid] {
		if p.edit != (edit{}) { // a restarted process would not know it either
			p.edit = edit{}
			s.markDirty(p.group.in(s))
		}
	}
}

// noteLive returns the labels of the namespace before an edit, nil if there was none, and the bystanders of the pod.
func (n *Node) noteLive(uid string, live Live) (edited map[string]string, bystanding []podIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	former, known := s.liveOf(uid, live.Namespace, live.Name)
	if known && live.NamespaceLabels == nil {
		live.NamespaceLabels = former.NamespaceLabels // too large now: the last ones count
	}
	if !maps.Equal(former.NamespaceLabels, live.NamespaceLabels) {
		edited = former.NamespaceLabels
	}
	s.live[uid] = live
	now := time.Now()
	for _, pod := range s.byUID[uid] {
		if !s.concerns(pod.group.in(s)) {
			bystanding = append(bystanding, pod.podIdentity)
			continue
		}
		if _, known := s.liveOf(uid, pod.namespace, pod.name); known {
			s.followNamespace(pod, &live) // no edit of the pod's author delays it
		}
		s.revisePaced(pod, now)
	}
	return edited, bystanding
}

// concernsLive reports whether a sandbox concerns the plugin by what the API server knows about its pod.
func (n *Node) concernsLive(sb *Sandbox) bool {
	live, known := n.liveOf(sb)
	if !known {
		return false
	}
	facts := n.factsNow(sb)
	return annotation.Concerns(live.Annotations) || n.policy.Load().Concerns(&facts)
}

func (n *Node) liveOf(sb *Sandbox) (Live, bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	return s.liveOf(sb.UID, sb.Namespace, sb.Name)
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

// revise has a pod follow what the API server knows about it. Labels and claims count at once if no container is live: a
// creation asks the budget. Everything else is an edit. A bystander follows it once something concerns it.
func (s *state) revise(p *pod) {
	live, known := s.liveOf(p.uid, p.namespace, p.name)
	if !known || !s.concerns(p.group.in(s)) {
		return
	}
	s.followNamespace(p, &live)
	if live.OnlyNamespace {
		return
	}
	had, now := p.edit, p.request.now.Load()
	before, next := had, now.followFacts(&live)
	if next != now && (!p.hasLiveContainer() || !now.mayTakeMore(next)) {
		s.replaceRequest(p, next)
		before.next, now = nil, next
	}
	if live.Err == nil && !now.has(live.Annotations) {
		next = next.with(live.Annotations)
	}
	switch {
	case next == now:
		p.edit = edit{}
		switch {
		case live.Err == nil:
		case live.isEdited(now):
			p.edit.err = &rejectedEdit{partAnnotations, live.Err}
		default:
			p.edit.unknown = live.Err
		}
	case before.next.isLike(next):
	default:
		p.edit = edit{next: next, err: before.err}
		p.group.in(s).told.forget(changeRejected, p.ref)
	}
	if p.edit != had {
		s.markDirty(p.group.in(s))
	}
}

// hasLiveContainer reports whether a container of the pod may have a part of a budget.
func (p *pod) hasLiveContainer() bool {
	for _, c := range p.containers {
		if c.isLive() {
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
	p.isComplete = false // targets may be others
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

// isOf reports whether the request is still the one of its pod.
func (r *request) isOf(p *podIdentity) bool { return p.request.now.Load() == r }

// decidedBy reports whether the limits of the container were decided by this policy and the request of its pod.
func (c *snapshot) decidedBy(pol *policy.Policy) bool {
	return c.decision.policy.Of() == pol && c.decision.request.isOf(&c.pod)
}
