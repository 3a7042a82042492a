package node

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// The runtime reports a pod as it was when its sandbox was made. The API server knows the pod as it is now. A live change
// is a difference between the two that appears while the pod runs. What an administrator sets counts at once. What an author sets is an
// edit, which counts if it is valid and there is room.

func (n *Node) forgetLive(uid string) {
	s := n.state.Lock()
	defer n.state.Unlock()
	s.setLive(uid, nil)
	for _, p := range s.byUID[uid] {
		if p.edit != (edit{}) { // a restarted process would not know it either
			p.edit = edit{}
			s.markDirty(p.group.in(s))
		}
	}
}

// noteLive returns the labels of the namespace before an edit, nil if there was none, and the bystanders of the pod.
func (n *Node) noteLive(uid string, l live) (edited map[string]string, bystanding []podIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	former, known := s.liveOf(uid, l.Namespace, l.name)
	if known && l.namespaceLabels == nil {
		l.namespaceLabels = former.namespaceLabels // too large now: the last ones count
	}
	if !maps.Equal(former.namespaceLabels, l.namespaceLabels) {
		edited = former.namespaceLabels
	}
	s.setLive(uid, &l)
	now := time.Now()
	for _, pod := range s.byUID[uid] {
		if !pod.group.in(s).isConcerned() {
			bystanding = append(bystanding, pod.podIdentity)
			continue
		}
		if _, known := s.liveOf(uid, pod.namespace, pod.name); known {
			s.followNamespace(pod, l.namespaceLabels) // no edit of the pod's author delays it
		}
		s.revisePaced(pod, now)
		if l.owner != former.owner {
			s.markDirty(pod.group.in(s)) // to lend to it
		}
	}
	return edited, bystanding
}

// withLive returns a request with all that the API server knows about its pod.
func (s *state) withLive(r *podfacts.Request, uid, name string) *podfacts.Request {
	l, known := s.liveOf(uid, r.Namespace, name)
	if !known {
		return r
	}
	return r.With(l.Request, podfacts.Annotations|besideAnnotations).InNamespace(l.namespaceLabels, s.namespaceKeys)
}

func (n *Node) withLive(r *podfacts.Request, uid, name string) (*podfacts.Request, live) {
	s := n.state.Lock()
	defer n.state.Unlock()
	l, _ := s.liveOf(uid, r.Namespace, name)
	return s.withLive(r, uid, name), l
}

// revise has a pod follow what the API server knows about it. Labels and claims count at once if no container is live: a
// creation asks the budget. Everything else that the author sets is an edit. A bystander follows it once something concerns it.
func (s *state) revise(p *pod) {
	l, known := s.liveOf(p.uid, p.namespace, p.name)
	if !known || !p.group.in(s).isConcerned() {
		return
	}
	s.followNamespace(p, l.namespaceLabels)
	if l.Annotations == nil && l.err == nil { // only the namespace has been read
		return
	}
	had, now := p.edit, p.request.now.Load()
	before, next := had.next, now.With(l.Request, besideAnnotations)
	if next != now && !p.hasLiveContainer() {
		s.replaceRequest(p, next)
		before, now = nil, next
	}
	next = next.With(l.Request, podfacts.Annotations)
	switch {
	case next == now:
		p.edit = edit{}
		switch {
		case l.err == nil:
		case now.Annotations != nil: // these can be known, so others were written
			p.edit.err = &rejectedEdit{podfacts.Annotations, l.err}
		default:
			p.edit.unknown = l.err
		}
	case before != nil && next.Differences(before) == 0:
	default:
		p.edit = edit{next: next}
		p.group.in(s).told.Forget(func(key noticeKey) bool { return key.kind == changeRejected && key.pod == p.ref })
	}
	if p.edit != had {
		s.markDirty(p.group.in(s))
	}
}

// replaceRequest replaces the request of a pod. Its containers are decided again. What was known about other containers
// is forgotten, because their disks were not found for the new targets.
func (s *state) replaceRequest(p *pod, r *podfacts.Request) {
	p.request.now.Store(r)
	there := map[string]bool{}
	for _, c := range p.containers {
		there[c.name] = there[c.name] || c.isLive()
	}
	maps.DeleteFunc(p.known, func(name string, _ knownFacts) bool { return !there[name] })
	s.markDirty(p.group.in(s))
}

// replaceAnnotations replaces the request of a pod by one with other annotations. What the pod as a whole was granted by
// those before does not count for entries that are rejected now, and bounds its part of a budget no more.
func (s *state) replaceAnnotations(p *pod, r *podfacts.Request) {
	s.replaceRequest(p, r)
	g := p.group.in(s)
	carried := g.recorded.granted.OnlyCarried()
	g.recorded.granted = &carried
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

// revisePaced has a pod follow what the API server knows about it, if its pace allows for that, and later otherwise.
func (s *state) revisePaced(p *pod, now time.Time) {
	if p.pace.IsDelayed = p.pace.Due().After(now); p.pace.IsDelayed {
		s.reconcileAt(p.group.in(s), p.pace.Due())
		return
	}
	had, by := p.edit, p.request.now.Load()
	if s.revise(p); p.edit != had || p.request.now.Load() != by {
		p.pace.Pay(now)
	}
}

// reviseDelayed has the pods of a group follow the newest of the live changes that came too soon after others.
func (s *state) reviseDelayed(g *group, now func() time.Time) {
	for _, p := range g.pods {
		if p.pace.IsDelayed {
			s.revisePaced(p, now())
		}
	}
}

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

// A rule can need the labels of namespaces, which only the API server knows. Without them a pod may have limits that the policy does
// not mean. The log and the metrics name such pods.

// errNotDescribed is why labels of a pod's namespace are unknown.
var errNotDescribed = errors.New("the cluster part (run --only cluster) does not run on this node, has written no document for these pods, or has left this out because it is too large")

// unlabelled returns the pods that joined before some time and whose rule is not certain, because labels of their namespaces are
// unknown. It asks the rules without the lock, because that may take longer.
func (n *Node) unlabelled(before time.Time) (out []podIdentity) {
	pol := n.policy.Load()
	keys := pol.NamespaceKeys()
	if keys == nil {
		return nil
	}
	for pod, facts := range n.withoutLabels(keys, before) {
		if pol.LacksNamespaceLabels(&facts) {
			out = append(out, pod)
		}
	}
	return out
}

// withoutLabels returns the pods with containers that joined before some time, and whose namespace has unknown labels of some keys.
func (n *Node) withoutLabels(keys []string, before time.Time) map[podIdentity]policy.PodFacts {
	s := n.state.Lock()
	defer n.state.Unlock()
	out := map[podIdentity]policy.PodFacts{}
	for _, p := range s.pods {
		now := p.request.now.Load()
		if !p.group.in(s).isConcerned() {
			now = s.withLive(now, p.uid, p.name) // a bystander does not follow it yet
		}
		if p.joined.Before(before) && p.hasLiveContainer() && !now.NamespaceLabels.Know(keys) {
			out[p.podIdentity] = now.PodFacts
		}
	}
	return out
}
