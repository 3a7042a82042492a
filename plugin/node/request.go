package node

import (
	"maps"
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
	isEdited    bool                       // the annotations are those of a live change
	parse       func() *annotation.Request // parses the annotations when it is first called
	last        atomic.Pointer[policy.Pod]
}

// annotationRoom is the memory in bytes that the annotations of a pod take at most beside their parsed form. It is more
// than a live change can have.
const annotationRoom = 32 << 10

// newRequest returns a request by annotations, of which those of other domains do not count.
func newRequest(facts policy.PodFacts, annotations map[string]string) *request {
	r := &request{facts: facts, annotations: map[string]string{}}
	size := 0
	for key, value := range annotations {
		if annotation.IsKey(key) {
			size += len(key) + len(value)
			r.annotations[key] = value
		}
	}
	own := r.annotations
	r.parse = sync.OnceValue(func() *annotation.Request { return annotation.Parse(own) })
	if size > annotationRoom {
		r.annotations = nil
	}
	return r
}

// with returns a request with the annotations of a live change.
func (r *request) with(annotations map[string]string) *request {
	out := newRequest(r.facts, annotations)
	out.isEdited = true
	return out
}

// withLabels returns a request with other labels of the pod.
func (r *request) withLabels(labels map[string]string) *request {
	out := &request{facts: r.facts, annotations: r.annotations, isEdited: r.isEdited, parse: r.parse}
	out.facts.Labels = labels
	return out
}

// has reports whether the request is by these annotations of this domain.
func (r *request) has(annotations map[string]string) bool {
	return r.annotations != nil && maps.Equal(r.annotations, annotations)
}

// isLike reports whether a request is by the same annotations and labels. None is like no other.
func (r *request) isLike(o *request) bool {
	return r != nil && o.annotations != nil && r.has(o.annotations) && maps.Equal(r.facts.Labels, o.facts.Labels)
}

// under returns the policy for the pod. It finds the rule once for each policy.
func (r *request) under(pol *policy.Policy) *policy.Pod {
	if known := r.last.Load(); known.Of() == pol {
		return known
	}
	fresh := pol.ForPod(&r.facts, r.parse())
	r.last.Store(fresh)
	return fresh
}

// newPod returns the identity of a pod with the facts that are kept, and whether labels were dropped.
func newPod(sb *Sandbox, pol *policy.Policy) (_ podIdentity, isCut bool) {
	facts := sb.Facts()
	facts.Labels, _, isCut = keptLabels(facts.Labels, pol)
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
