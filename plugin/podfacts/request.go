package podfacts

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Request is what is requested for a pod, by its annotations and by the rule of the policy that matches it. It does not change.
type Request struct {
	policy.PodFacts
	// Annotations are those of this domain. They are nil if they are unknown, or too long to be kept; then no others are equal to them.
	Annotations map[string]string
	edited      Parts // those that are not as the runtime has reported them
	parsed      *parsed
	last        atomic.Pointer[policy.Pod]
}

// parsed has the parsed form of annotations.
type parsed struct {
	from    map[string]string // nil once they are parsed
	once    sync.Once
	request *annotation.Request
}

// get parses the annotations when it is first called.
func (p *parsed) get() *annotation.Request {
	p.once.Do(func() { p.request, p.from = annotation.Parse(p.from), nil })
	return p.request
}

// Request returns what is requested by the facts, without the labels of the namespace. It leaves the annotations unparsed.
func (f *Facts) Request(qos policy.QOS, handler string) *Request {
	r := &Request{PodFacts: policy.PodFacts{Namespace: f.Namespace, Labels: f.Labels, QOS: qos, Handler: handler, Volumes: f.volumes()}}
	own := Own(f.Annotations)
	if r.parsed = (&parsed{from: own}); f.Annotations != nil && fits(own) {
		r.Annotations = own
	}
	return r
}

// Under returns the policy for the pod. It finds the rule once for each policy.
func (r *Request) Under(pol *policy.Policy) *policy.Pod {
	if known := r.last.Load(); known.Of() == pol {
		return known
	}
	fresh := pol.ForPod(&r.PodFacts, r.parsed.get())
	r.last.Store(fresh)
	return fresh
}

// With returns a request with some parts of another one, as far as these are known there. It returns r if they are equal.
func (r *Request) With(o *Request, some Parts) *Request {
	if o == r {
		return r
	}
	out := &Request{PodFacts: r.PodFacts, Annotations: r.Annotations, edited: r.edited, parsed: r.parsed}
	var changed Parts
	if some.Has(Annotations) && o.Annotations != nil && !r.HasAnnotationsOf(o) {
		out.Annotations, out.parsed, changed = o.Annotations, o.parsed, changed|Annotations
	}
	if some.Has(Labels) && o.Labels != nil {
		if labels := withRuntimeLabels(o.Labels, r.Labels); !maps.Equal(labels, r.Labels) {
			out.Labels, changed = labels, changed|Labels
		}
	}
	if some.Has(Volumes) && o.Volumes != nil && !o.Volumes.Equal(r.Volumes) {
		out.Volumes, changed = o.Volumes, changed|Volumes
	}
	if some.Has(Namespace) && o.NamespaceLabels != nil && !o.NamespaceLabels.Equal(r.NamespaceLabels) {
		out.NamespaceLabels, changed = o.NamespaceLabels, changed|Namespace
	}
	if changed == 0 {
		return r
	}
	out.edited |= changed
	return out
}

// InNamespace returns a request with those labels of the namespace that have these keys. all has all its labels, and is nil while they
// are unknown. Other labels may change without any work.
func (r *Request) InNamespace(all map[string]string, keys []string) *Request {
	return r.With(&Request{PodFacts: policy.PodFacts{NamespaceLabels: policy.KnownLabels(all, keys)}}, Namespace)
}

// runtimeLabels is the prefix of labels that the runtime reports and that are not of the pod itself, such as its name and
// UID. CRI-O adds others than containerd.
const runtimeLabels = "io.kubernetes."

// withRuntimeLabels returns labels with those of the reported ones that only the runtime has.
func withRuntimeLabels(labels, reported map[string]string) map[string]string {
	out := maps.Clone(labels)
	for key, value := range reported {
		if strings.HasPrefix(key, runtimeLabels) {
			out[key] = value
		}
	}
	return out
}

// HasAnnotationsOf reports whether two requests of a pod are by the same annotations. Those that are too long to be kept are not
// edited, so only those of one report are the same.
func (r *Request) HasAnnotationsOf(o *Request) bool {
	return r.parsed == o.parsed || r.Annotations != nil && o.Annotations != nil && maps.Equal(r.Annotations, o.Annotations)
}

// Differences returns the parts in which a request differs from another one of the pod.
func (r *Request) Differences(o *Request) (out Parts) {
	for part, isSame := range map[Parts]bool{
		Annotations: r.HasAnnotationsOf(o),
		Labels:      maps.Equal(r.Labels, o.Labels),
		Volumes:     r.Volumes.Equal(o.Volumes),
		Namespace:   r.NamespaceLabels.Equal(o.NamespaceLabels),
	} {
		if !isSame {
			out |= part
		}
	}
	return out
}

// ChangedClaims returns the names of the claims that have other limits than by the former request. It returns none if the former
// volumes were unknown: they become known a moment after the pod's sandbox, and after each restart of the plugin.
func (r *Request) ChangedClaims(former *Request) []string {
	if !former.Volumes.Known() {
		return nil
	}
	return r.Volumes.ChangedClaims(former.Volumes)
}

// Edit is the form of a request in the record of its pod. Annotations and labels were edited while the pod ran. Those that are nil are
// the ones that the runtime reports. Those that are empty were all removed.
type Edit struct {
	Sandbox     string            `json:"sandbox"` // ID of the sandbox that the pod had
	Annotations map[string]string `json:"annotations,omitzero"`
	Labels      map[string]string `json:"labels,omitzero"`
	// NamespaceLabels are those labels of the pod's namespace by which rules of the policy select. The runtime never reports them.
	NamespaceLabels policy.NamespaceLabels `json:"namespaceLabels,omitzero"`
}

// Size returns the bytes that an edit takes in a record. e may be nil.
func (e *Edit) Size() int {
	if e == nil {
		return 0
	}
	return len(`,"edit":`) + size(e) - len("\n")
}

// Edit returns the form of a request in the record of its pod. It is nil if all of it is what the runtime reports. Volumes are not in the
// record: the limits that were granted for them are.
func (r *Request) Edit(sandbox string) *Edit {
	out := &Edit{Sandbox: sandbox, NamespaceLabels: r.NamespaceLabels}
	if !r.edited.Has(Annotations|Labels) && out.NamespaceLabels == nil {
		return nil
	}
	if r.edited.Has(Annotations) {
		out.Annotations = r.Annotations
	}
	if r.edited.Has(Labels) {
		out.Labels = r.Labels
	}
	return out
}

// Restored returns a request with those parts of a recorded edit that the request does not have in a newer version. Annotations and labels of another
// sandbox are older than what the runtime reports for this one.
func (r *Request) Restored(from *Edit, sandbox string) *Request {
	edited := Facts{Annotations: from.Annotations, Labels: from.Labels}
	recorded, missing := edited.Request("", ""), Parts(0)
	recorded.NamespaceLabels = from.NamespaceLabels
	if from.Sandbox == sandbox {
		missing = (Annotations | Labels) &^ r.edited
	}
	if r.NamespaceLabels == nil {
		missing |= Namespace
	}
	return r.With(recorded, missing)
}
