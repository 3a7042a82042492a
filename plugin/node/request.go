package node

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// podRequest holds what is requested for a pod. Only a live change replaces it.
type podRequest struct {
	handler string // runtime handler of the pod's RuntimeClass, which never changes
	now     atomic.Pointer[request]
}

// request is what is requested for a pod, by its annotations and by the rule of the policy that matches it.
type request struct {
	facts policy.PodFacts
	// annotations are those of this domain. They are nil if they are too long to be kept; then no others are equal to
	// them.
	annotations map[string]string
	edited      edited
	parsed      *parsed
	last        atomic.Pointer[policy.Pod]
}

// edited has the parts of a request that are those of a live change, instead of those that the runtime reported.
type edited struct{ annotations, labels bool }

// annotationRoom is the memory in bytes that the annotations that the runtime reports about a pod take at most beside
// their parsed form.
const annotationRoom = 32 << 10

// newRequest returns a request by annotations that the runtime reports.
func newRequest(facts policy.PodFacts, annotations map[string]string) *request {
	r := requestBy(facts, annotations)
	size := 0
	for key, value := range r.annotations {
		size += len(key) + len(value)
	}
	if size > annotationRoom {
		r.annotations = nil
	}
	return r
}

// requestBy returns a request by annotations, of which those of other domains do not count.
func requestBy(facts policy.PodFacts, annotations map[string]string) *request {
	own := map[string]string{}
	for key, value := range annotations {
		if annotation.IsKey(key) {
			own[key] = value
		}
	}
	return &request{facts: facts, annotations: own, parsed: &parsed{from: own}}
}

// parsed has the parsed form of annotations.
type parsed struct {
	from    map[string]string
	once    sync.Once
	request *annotation.Request
}

// get parses the annotations when it is first called.
func (p *parsed) get() *annotation.Request {
	p.once.Do(func() { p.request = annotation.Parse(p.from) })
	return p.request
}

// with returns a request with the annotations of a live change.
func (r *request) with(annotations map[string]string) *request {
	out := requestBy(r.facts, annotations)
	out.edited = edited{annotations: true, labels: r.edited.labels}
	return out
}

// withLabels returns a request with the labels of a live change.
func (r *request) withLabels(labels map[string]string) *request {
	out := &request{facts: r.facts, annotations: r.annotations, edited: r.edited, parsed: r.parsed}
	out.facts.Labels, out.edited.labels = labels, true
	return out
}

// withFacts returns a request with the facts of a live change. The record of the pod never has claims, and it has labels of
// the pod only if some live change was of them.
func (r *request) withFacts(facts *policy.PodFacts) *request {
	out := r.withLabels(facts.Labels)
	out.facts, out.edited.labels = *facts, r.edited.labels || !maps.Equal(facts.Labels, r.facts.Labels)
	return out
}

// withAnnotationsOf returns a request with the annotations of an edited one.
func (r *request) withAnnotationsOf(edited *request) *request {
	out := &request{facts: r.facts, annotations: edited.annotations, edited: r.edited, parsed: edited.parsed}
	out.edited.annotations = true
	return out
}

// has reports whether the request is by these annotations of this domain.
func (r *request) has(annotations map[string]string) bool {
	return r.annotations != nil && maps.Equal(r.annotations, annotations)
}

// hasOtherAnnotations reports whether the request is by other annotations than another request of the pod. Those that are
// too long to be kept are not edited, so they are the same.
func (r *request) hasOtherAnnotations(o *request) bool {
	return r.annotations != nil && !o.has(r.annotations)
}

// parts are the parts in which a request differs from another one.
type parts uint8

// The parts of a request. Its annotations and the labels of the pod are of the author of the pod. The limits of a claim can be of
// another author.
const (
	partAnnotations parts = 1 << iota
	partLabels
	partClaims
	partNamespace

	partFacts = partLabels | partClaims | partNamespace
)

// has reports whether one of some parts is there.
func (p parts) has(some parts) bool { return p&some != 0 }

// String names the parts for messages.
func (p parts) String() string { return p.text("limits of a claim") }

// text names the parts, with a text for the limits of claims.
func (p parts) text(claims string) string {
	var out []string
	for _, one := range []struct {
		part parts
		text string
	}{{partAnnotations, "annotations"}, {partLabels, "labels"}, {partClaims, claims}} {
		if p.has(one.part) {
			out = append(out, one.text)
		}
	}
	return strings.Join(out, " and ")
}

// differences returns the parts in which a request differs from the former one.
func (r *request) differences(former *request) (out parts) {
	for part, differs := range map[parts]bool{
		partAnnotations: r.hasOtherAnnotations(former),
		partLabels:      !maps.Equal(r.facts.Labels, former.facts.Labels),
		partClaims:      !r.facts.Claims.Equal(former.facts.Claims),
		partNamespace:   !r.facts.NamespaceLabels.Equal(former.facts.NamespaceLabels),
	} {
		if differs {
			out |= part
		}
	}
	return out
}

// changedClaims returns the names of the claims that have other limits than by the former request. It returns none if the former
// claims were unknown: they become known a moment after the pod's sandbox, and after each restart of the plugin.
func (r *request) changedClaims(former *request) []string {
	if !former.facts.Claims.Known() {
		return nil
	}
	return r.facts.Claims.Changed(former.facts.Claims)
}

// isLike reports whether a request is by the same annotations and facts. None is like no other.
func (r *request) isLike(o *request) bool {
	return r != nil && o.annotations != nil && r.has(o.annotations) && r.hasFacts(o)
}

// under returns the policy for the pod. It finds the rule once for each policy.
func (r *request) under(pol *policy.Policy) *policy.Pod {
	if known := r.last.Load(); known.Of() == pol {
		return known
	}
	fresh := pol.ForPod(&r.facts, r.parsed.get())
	r.last.Store(fresh)
	return fresh
}

// newPod returns the identity of a pod with the facts that are kept, and whether labels were dropped.
func newPod(sb *Sandbox, pol *policy.Policy) (_ podIdentity, isCut bool) {
	facts := sb.Facts()
	facts.Labels, isCut = keptLabels(facts.Labels, pol)
	out := podIdentity{
		id:        sb.ID,
		namespace: sb.Namespace,
		name:      sb.Name,
		uid:       sb.UID,
		request:   &podRequest{handler: facts.Handler},
	}
	out.request.now.Store(newRequest(facts, sb.Annotations))
	return out, isCut
}
