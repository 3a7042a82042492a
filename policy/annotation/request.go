// Package annotation is the grammar of a pod's annotations. It knows neither nodes nor containers: package
// policy decides the effect of a request on a node.
package annotation

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// Domain is the end of the prefix of the plugin's annotations, KIND.DOMAIN/SCOPE.
const Domain = "blkio.noderesource.dev"

// Bounds of memory and work for the annotations of one pod.
const (
	MaxKeys  = 64   // of this domain on one pod
	MaxTotal = 1024 // entries in the annotations of one pod
)

// Kinds returns the kinds of annotations.
func Kinds() []string { return []string{KindLimits, KindWeight, KindClass} }

// Request holds the parsed annotations of one pod.
type Request struct {
	keys    []string // of this domain, without that of ofClaim; sorted
	ofClaim *Error   // why an annotation has no effect; nil for none
	podWide []*Error // of keys that concern no known scope
	scopes  []*Scope // not more than keys, so that they are searched one by one
	entries int      // of all limits annotations
	targets Targets  // of all scopes
}

// Scope holds the annotations of one scope of a pod.
type Scope struct {
	Limits  *List    // nil for none
	Weights *List    // nil for none
	Class   *Class   // nil for none, and for an invalid one
	name    string   // "containers", "pod-total" or "container.NAME"
	star    bool     // a limit has the target "*"
	errs    []*Error // of the choice of a class, and of two keys for one annotation
}

// Parse parses a pod's annotations. It has no error, because each mistake belongs to the scope that it is in: a
// mistake in the annotation of container db fails only that container. An unknown kind of annotation, an
// unknown scope, and a mistake in pod-total concern all containers. If a pod has more than 64 annotations, or
// more than 1024 entries in them together, the request has only that error.
func Parse(annotations map[string]string) *Request {
	var keys []string
	for key := range annotations {
		if IsKey(key) {
			if keys == nil {
				keys = make([]string, 0, min(len(annotations), MaxKeys))
			}
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	r := &Request{keys: keys}
	if len(keys) > MaxKeys {
		return r.tooMuch(keys[0], "more than "+strconv.Itoa(MaxKeys)+" annotations of "+Domain+" on one pod",
			"write /containers once for what all containers share")
	}
	if value := annotations[limitsKey]; lackTargets(value) {
		r.ofClaim = New(Identity{From: Origin{Annotation: limitsKey}, Text: value, Reason: OfClaim}, &Problem{
			"limits without a target are those of a claim, and have no effect on a pod", `write "* wbps=50Mi" to limit each container`,
		})
		r.keys = slices.DeleteFunc(keys, func(key string) bool { return key == limitsKey })
	}
	r.scopes = make([]*Scope, 0, len(r.keys))
	for _, key := range r.keys {
		if r.parse(annotations, key); r.entries > MaxTotal {
			return r.tooMuch(key, "more than "+strconv.Itoa(MaxTotal)+" entries in the annotations of one pod together",
				"name fewer targets, or use *")
		}
	}
	r.collectTargets()
	return r
}

// tooMuch returns a request that has only the error.
func (r *Request) tooMuch(key, cause, hint string) *Request {
	return &Request{keys: r.keys[:1], podWide: []*Error{New(Identity{From: Origin{Annotation: key}}, &Problem{cause, hint})}}
}

func (r *Request) collectTargets() {
	for _, q := range r.scopes {
		r.targets.add(q.Limits)
		r.targets.add(q.Weights)
		q.star = q.Limits.HasStar()
	}
	r.targets.tidy()
}

// Concerns reports whether an annotation has the plugin's domain, valid or not. Most pods
// have none, and need no further work.
func Concerns(annotations map[string]string) bool {
	for key := range annotations {
		if IsKey(key) {
			return true
		}
	}
	return false
}

func (r *Request) parse(annotations map[string]string, key string) {
	kind, name := CutKey(key)
	value := annotations[key]
	if !slices.Contains(Kinds(), kind) {
		p := &Problem{"unknown annotation", spelling.Hint(strings.TrimSuffix(key, "/"+name), "limits."+Domain, "weight."+Domain, "class."+Domain)}
		if p.Hint == "" {
			p.Hint = "there are limits." + Domain + ", weight." + Domain + " and class." + Domain
		}
		r.podWide = append(r.podWide, New(Identity{From: Origin{Annotation: key}}, p))
		return
	}
	if key == kind+"."+Domain {
		name = ScopeEach
		if explicit, both := annotations[key+"/"+name]; both {
			if explicit != value {
				each := r.at(name)
				each.errs = append(each.errs, New(Identity{From: Origin{Annotation: key}}, &Problem{
					"the key without a scope means /containers, and both have different values", "remove one of them",
				}))
			}
			return
		}
	}
	scope, p := r.scope(name)
	if p != nil {
		r.podWide = append(r.podWide, New(Identity{From: Origin{Annotation: key}}, p))
		return
	}
	switch kind {
	case KindLimits:
		scope.Limits = parseLimits(key, value)
		r.entries += scope.Limits.count
	case KindWeight:
		scope.Weights = parseWeights(key, value)
		r.entries += scope.Weights.count
	case KindClass:
		if name == ScopeTotal {
			scope.errs = append(scope.errs, New(Identity{From: Origin{Annotation: key}, Text: value}, &Problem{"a class applies to containers", "write class." + Domain + "/containers"}))
			return
		}
		scope.parseClass(key, value)
	}
}

// hintScope names the scopes. In the convention of other NRI plugins /pod means each container, which many would not expect.
const hintScope = "write /containers for each container, /pod-total for the pod as a whole, or /container.NAME"

// scope returns the request of the scope with this name.
func (r *Request) scope(name string) (*Scope, *Problem) {
	switch name {
	case ScopeEach, ScopeTotal:
		return r.at(name), nil
	case "":
		return nil, &Problem{"no scope after the slash", hintScope}
	case "pod":
		return nil, &Problem{"invalid scope " + quote.Text(name), hintScope}
	}
	container, ok := strings.CutPrefix(name, scopeNamed)
	switch {
	case !ok:
		return nil, unknownScope(name)
	case !IsLabel(container):
		return nil, &Problem{"invalid container name " + quote.Text(container), hintLabel}
	}
	return r.at(name), nil
}

// at returns the scope with a name that is valid, and adds it if it is new.
func (r *Request) at(name string) *Scope {
	q := r.find(name)
	if q == nil {
		q = &Scope{name: name}
		r.scopes = append(r.scopes, q)
	}
	return q
}

// find returns the scope with a name, or nil if it is not annotated.
func (r *Request) find(name string) *Scope {
	if i := slices.IndexFunc(r.scopes, func(q *Scope) bool { return q.name == name }); i >= 0 {
		return r.scopes[i]
	}
	return nil
}

func unknownScope(name string) *Problem {
	p := &Problem{"unknown scope " + quote.Text(name), spelling.Hint(name, Scopes()...)}
	if container, ok := strings.CutPrefix(name, "containers."); ok && IsLabel(container) {
		p.Hint = "did you mean " + quote.Text("container."+container) + "?"
	}
	if p.Hint == "" {
		p.Hint = "write container.NAME, containers or pod-total"
	}
	return p
}

// hintLabel describes a label in fewer words than the errors of IsDNS1123Label.
const hintLabel = "use at most 63 of a-z, 0-9 and -, not starting or ending with -"

// IsLabel reports whether s is a DNS label (RFC 1123), as the names of containers, volumes,
// and classes are.
func IsLabel(s string) bool { return len(content.IsDNS1123Label(s)) == 0 }

// Keys returns the keys of the annotations that count, sorted. Of too many it returns one. The
// result must not be changed.
func (r *Request) Keys() []string { return r.keys }

// First returns the first of Keys, or "" if there are none.
func (r *Request) First() string {
	if len(r.keys) == 0 {
		return ""
	}
	return r.keys[0]
}

// PodWide returns the errors of keys without a known scope. They concern all containers.
func (r *Request) PodWide() []*Error { return r.podWide }

// Named returns the scope container.NAME of one container, or nil if it is not annotated.
func (r *Request) Named(container string) *Scope { return r.find(scopeNamed + container) }

// Scopes returns all scopes. The result must not be changed.
func (r *Request) Scopes() []*Scope { return r.scopes }

// Each returns the scope containers, or nil if it is not annotated.
func (r *Request) Each() *Scope { return r.find(ScopeEach) }

// Total returns the scope pod-total, or nil if it is not annotated.
func (r *Request) Total() *Scope { return r.find(ScopeTotal) }

// OfClaim returns why an annotation of the pod is ignored: it has the form of a claim's, and operators copy annotations to pods and
// claims alike. It returns nil if no annotation is.
func (r *Request) OfClaim() *Error { return r.ofClaim }

// Empty reports whether the pod has no annotation that counts.
func (r *Request) Empty() bool { return len(r.keys) == 0 }

// Targets returns the targets of all scopes. Its lists must not be changed.
func (r *Request) Targets() Targets { return r.targets }

// StarOf reports whether a "*" applies to the container with this name, in its own scope,
// in containers, or in pod-total.
func (r *Request) StarOf(container string) bool {
	return r.Targets().HasStar() && (r.Each().hasStar() || r.Total().hasStar() || r.Named(container).hasStar())
}

func (q *Scope) hasStar() bool { return q != nil && q.star }

// ContainerNames returns the sorted names of the containers that have a scope
// container.NAME. The pod may not have containers with all of these names.
func (r *Request) ContainerNames() (out []string) {
	for _, q := range r.scopes {
		if container, ok := strings.CutPrefix(q.name, scopeNamed); ok {
			out = append(out, container)
		}
	}
	slices.Sort(out)
	return out
}

// Errors returns the mistakes in the annotations of a scope that do not depend on the node
// and its policy.
func (q *Scope) Errors() []*Error {
	if q == nil {
		return nil
	}
	var errs []*Error
	if q.Limits != nil {
		errs = append(errs, q.Limits.errors...)
	}
	if q.Weights != nil {
		errs = append(errs, q.Weights.errors...)
	}
	return append(errs, q.errs...)
}
