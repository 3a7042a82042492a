package annotation

import (
	"maps"
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
	maxKeys  = 64   // annotations of ours on one pod
	maxTotal = 1024 // entries in the annotations of one pod
)

// Kinds returns the kinds of annotations.
func Kinds() []string { return []string{"limits", "weight", "class"} }

// Request holds the parsed annotations of one pod.
type Request struct {
	first   string            // of our keys, in order; "" where there is none
	podWide []*Error          // of keys that concern no known scope
	named   map[string]*Scope // by container
	each    *Scope            // "containers"; nil where nothing is asked
	total   *Scope            // "pod-total"; nil where nothing is asked
	entries int               // of all limits annotations
	paths   []string          // targets of all scopes, sorted, distinct
	volumes []string          // the same of volumes
	star    bool              // some scope has a "*"
	rootfs  bool              // some scope has "rootfs"
}

// Scope holds the annotations of one scope of a pod.
type Scope struct {
	Limits  *List  // nil for none
	Weights *List  // nil for none
	star    bool   // a limit has the target "*"
	class   *Error // nil where none is asked
}

// Parse parses a pod's annotations. It has no error: each mistake belongs to the scope that
// it is in, so that a mistake in the annotation of container db fails only that container.
// An unknown kind of annotation, an unknown scope, and a mistake in pod-total concern all
// containers. If a pod has more than 64 annotations, or more than 1024 entries in them
// together, the request has only that error.
func Parse(annotations map[string]string) *Request {
	var keys []string
	for key := range annotations {
		if prefix, _, _ := strings.Cut(key, "/"); isOurs(prefix) {
			keys = append(keys, key)
		}
	}
	r := &Request{}
	if len(keys) == 0 {
		return r
	}
	slices.Sort(keys)
	r.first = keys[0]
	if len(keys) > maxKeys {
		return r.tooMuch(r.first, "more than "+strconv.Itoa(maxKeys)+" annotations of "+Domain+" on one pod",
			"write /containers once for what all containers share")
	}
	for _, key := range keys {
		if r.parse(key, annotations[key]); r.entries > maxTotal {
			return r.tooMuch(key, "more than "+strconv.Itoa(maxTotal)+" entries in the annotations of one pod together",
				"name fewer targets, or use *")
		}
	}
	r.collectTargets()
	return r
}

// tooMuch is a request of which nothing is kept but the error.
func (r *Request) tooMuch(key, cause, hint string) *Request {
	return &Request{first: r.first, podWide: []*Error{{Annotation: key, Cause: cause, Hint: hint}}}
}

func (r *Request) collectTargets() {
	add := func(q *Scope) {
		if q == nil {
			return
		}
		r.collect(q.Weights)
		r.collect(q.Limits)
		q.star = q.Limits.hasStar()
	}
	add(r.each)
	add(r.total)
	for _, q := range r.named {
		add(q)
	}
	slices.Sort(r.paths)
	slices.Sort(r.volumes)
	r.paths, r.volumes = slices.Compact(r.paths), slices.Compact(r.volumes)
}

// collect adds the targets of one annotation.
func (r *Request) collect(l *List) {
	if l == nil {
		return
	}
	for i := range l.Entries {
		switch t := &l.Entries[i].Target; t.Kind {
		case TargetPath:
			r.paths = append(r.paths, t.Path)
		case TargetVolume:
			r.volumes = append(r.volumes, t.Volume)
		case TargetRootfs:
			r.rootfs = true
		case TargetStar:
			r.star = true
		}
	}
}

// Concerns reports whether an annotation has the plugin's domain, valid or not. Most pods
// have none, and need no further work.
func Concerns(annotations map[string]string) bool {
	for key := range annotations {
		if prefix, _, _ := strings.Cut(key, "/"); isOurs(prefix) {
			return true
		}
	}
	return false
}

func isOurs(prefix string) bool {
	kind, ok := strings.CutSuffix(prefix, Domain)
	return ok && (kind == "" || strings.HasSuffix(kind, "."))
}

func (r *Request) parse(key, value string) {
	prefix, name, _ := strings.Cut(key, "/")
	kind := strings.TrimSuffix(strings.TrimSuffix(prefix, Domain), ".")
	if !slices.Contains(Kinds(), kind) {
		p := &Problem{"unknown annotation", spelling.Hint(prefix, "limits."+Domain, "weight."+Domain, "class."+Domain)}
		if p.Hint == "" {
			p.Hint = "there are limits." + Domain + " and weight." + Domain
		}
		r.podWide = append(r.podWide, &Error{Annotation: key, Cause: p.Cause, Hint: p.Hint})
		return
	}
	scope, p := r.scope(name)
	if p != nil {
		r.podWide = append(r.podWide, &Error{Annotation: key, Cause: p.Cause, Hint: p.Hint})
		return
	}
	switch kind {
	case "limits":
		scope.Limits = parseLimits(key, value)
		r.entries += scope.Limits.count
	case "weight":
		scope.Weights = parseWeights(key, value)
		r.entries += scope.Weights.count
	case "class":
		scope.class = &Error{
			Annotation: key, Text: value,
			Cause: "classes are not supported", Hint: "write limits." + Domain + "/" + name,
		}
	}
}

// hintScope names the scopes. In the convention of other NRI plugins /pod and
// the bare key mean each container, which many would not expect.
const hintScope = "write /containers for each container, /pod-total for the pod as a whole, or /container.NAME"

// scope returns what is asked for the scope with this name.
func (r *Request) scope(name string) (*Scope, *Problem) {
	switch name {
	case "containers":
		return orNew(&r.each), nil
	case "pod-total":
		return orNew(&r.total), nil
	case "":
		return nil, &Problem{"no scope after the prefix", hintScope}
	case "pod":
		return nil, &Problem{"invalid scope " + quote.Text(name), hintScope}
	}
	container, ok := strings.CutPrefix(name, "container.")
	switch {
	case !ok:
		return nil, unknownScope(name)
	case !isLabel(container):
		return nil, &Problem{
			"invalid container name " + quote.Text(container),
			hintLabel,
		}
	}
	if r.named == nil {
		r.named = map[string]*Scope{}
	}
	if r.named[container] == nil {
		r.named[container] = &Scope{}
	}
	return r.named[container], nil
}

func orNew(r **Scope) *Scope {
	if *r == nil {
		*r = &Scope{}
	}
	return *r
}

func unknownScope(name string) *Problem {
	p := &Problem{"unknown scope " + quote.Text(name), spelling.Hint(name, "containers", "pod-total")}
	if container, ok := strings.CutPrefix(name, "containers."); ok && isLabel(container) {
		p.Hint = "did you mean " + quote.Text("container."+container) + "?"
	}
	if p.Hint == "" {
		p.Hint = "write container.NAME, containers or pod-total"
	}
	return p
}

// hintLabel describes a label in fewer words than the errors of IsDNS1123Label.
const hintLabel = "use at most 63 of a-z, 0-9 and -, not starting or ending with -"

// isLabel reports whether s is a DNS label (RFC 1123), as the names of containers
// and of volumes are.
func isLabel(s string) bool { return len(content.IsDNS1123Label(s)) == 0 }

// First returns the first key of the plugin's annotations in sorted order, or "" if there
// are none.
func (r *Request) First() string { return r.first }

// PodWide returns the errors of keys without a known scope. They concern all containers.
func (r *Request) PodWide() []*Error { return r.podWide }

// Named returns the scope container.NAME of one container, or nil if it is not annotated.
func (r *Request) Named(container string) *Scope { return r.named[container] }

// Each returns the scope containers, or nil if it is not annotated.
func (r *Request) Each() *Scope { return r.each }

// Total returns the scope pod-total, or nil if it is not annotated.
func (r *Request) Total() *Scope { return r.total }

// Empty reports whether the pod has no annotation with the plugin's domain.
func (r *Request) Empty() bool { return r == nil || r.first == "" }

// Paths returns the paths that are targets of any scope, sorted and without duplicates. The
// result must not be changed.
func (r *Request) Paths() []string {
	if r.Empty() {
		return nil
	}
	return r.paths
}

// Volumes returns the names of the volumes that are targets of any scope, sorted and
// without duplicates. The result must not be changed.
func (r *Request) Volumes() []string {
	if r.Empty() {
		return nil
	}
	return r.volumes
}

// Star reports whether "*" is a target of any scope.
func (r *Request) Star() bool { return !r.Empty() && r.star }

// Rootfs reports whether a target of any scope selects the writable layer, which "rootfs"
// and "*" do.
func (r *Request) Rootfs() bool { return !r.Empty() && (r.star || r.rootfs) }

// StarOf reports whether a "*" applies to the container with this name, in its own scope,
// in containers, or in pod-total. A new source of "*" must be added here: undeclared disks
// are searched for in these containers only.
func (r *Request) StarOf(container string) bool {
	return r.Star() && (r.each.hasStar() || r.total.hasStar() || r.named[container].hasStar())
}

func (q *Scope) hasStar() bool { return q != nil && q.star }

// ContainerNames returns the sorted names of the containers that have a scope
// container.NAME. The pod may not have containers with all of these names.
func (r *Request) ContainerNames() []string {
	if r.Empty() {
		return nil
	}
	return slices.Sorted(maps.Keys(r.named))
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
	if q.class != nil {
		errs = append(errs, q.class)
	}
	return errs
}

// HasWeights reports whether some scope has a weight.
func (r *Request) HasWeights() bool {
	if r.Empty() {
		return false
	}
	has := r.each.hasWeights() || r.total.hasWeights()
	for _, q := range r.named {
		has = has || q.hasWeights()
	}
	return has
}

func (q *Scope) hasWeights() bool { return q != nil && q.Weights != nil }
