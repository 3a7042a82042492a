package policy

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// Domain is what the prefixes of the plugin's annotations end in: KIND.DOMAIN/SCOPE.
const Domain = "blkio.noderesource.dev"

// Bounds of memory and work for the annotations of one pod.
const (
	maxKeys  = 64   // annotations of ours on one pod
	maxTotal = 1024 // entries in the limits annotations of one pod
)

// Kinds returns the kinds of annotations.
func Kinds() []string { return []string{"limits", "weight", "class"} }

// Request holds the parsed annotations of one pod.
type Request struct {
	first   string              // of our keys, in order; "" where there is none
	podWide []*Error            // of keys that concern no known scope
	named   map[string]*request // by container
	each    *request            // "containers"; nil where nothing is asked
	total   *request            // "pod-total"; nil where nothing is asked
	entries int                 // of all limits annotations
	paths   []string            // targets of all scopes, sorted, distinct
	volumes []string            // the same of volumes
	star    bool                // some scope has a "*"
	rootfs  bool                // some scope has "rootfs"
}

// request is what is asked for one scope.
type request struct {
	limits *limitsRequest // nil where none are asked
	star   bool           // one of them is of "*"
	weight *weightRequest // nil where none is asked
	class  *Error         // nil where none is asked
}

// weightRequest is one weight annotation; value is 0 beside an error.
type weightRequest struct {
	key   string
	value uint32
	err   *Error
}

// ParseRequest parses a pod's annotations. It never fails as a whole: what is
// wrong is kept with the scope it concerns, so that a mistake in the
// annotation of container db fails only that container. An unknown scope or
// kind of annotation, and a mistake in pod-total, concerns each container. Of
// more than 64 annotations, or 1024 entries in them together, nothing is kept
// but that error.
func ParseRequest(annotations map[string]string) *Request {
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
			return r.tooMuch(key, "more than "+strconv.Itoa(maxTotal)+" entries in the limits annotations of one pod together",
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
	add := func(q *request) {
		if q == nil || q.limits == nil {
			return
		}
		for i := range q.limits.entries {
			switch t := &q.limits.entries[i].target; t.kind {
			case targetPath:
				r.paths = append(r.paths, t.path)
			case targetVolume:
				r.volumes = append(r.volumes, t.volume)
			case targetRootfs:
				r.rootfs = true
			case targetStar:
				r.star, q.star = true, true
			}
		}
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

// Concerns reports whether any annotation has the plugin's domain, valid or not. Most pods
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
	prefix, scope, slash := strings.Cut(key, "/")
	kind := strings.TrimSuffix(strings.TrimSuffix(prefix, Domain), ".")
	if !slices.Contains(Kinds(), kind) {
		p := &problem{"unknown annotation", spelling.Hint(prefix, "limits."+Domain, "weight."+Domain, "class."+Domain)}
		if p.hint == "" {
			p.hint = "there are limits." + Domain + " and weight." + Domain
		}
		r.podWide = append(r.podWide, &Error{Annotation: key, Cause: p.cause, Hint: p.hint})
		return
	}
	if !slash {
		scope = ""
	}
	target, p := r.scope(scope)
	if p != nil {
		r.podWide = append(r.podWide, &Error{Annotation: key, Cause: p.cause, Hint: p.hint})
		return
	}
	switch kind {
	case "limits":
		target.limits = parseLimits(key, value)
		r.entries += target.limits.count
	case "weight":
		target.weight = parseWeight(key, value)
	case "class":
		target.class = &Error{
			Annotation: key, Text: value,
			Cause: "classes are not supported", Hint: "write limits." + Domain + "/" + scope,
		}
	}
}

// hintScope names the scopes. In the convention of other NRI plugins /pod and
// the bare key mean each container, which many would not expect.
const hintScope = "write /containers for each container, /pod-total for the pod as a whole, or /container.NAME"

// scope returns what is asked for the scope with this name.
func (r *Request) scope(name string) (*request, *problem) {
	switch name {
	case "containers":
		return orNew(&r.each), nil
	case "pod-total":
		return orNew(&r.total), nil
	case "":
		return nil, &problem{"no scope after the prefix", hintScope}
	case "pod":
		return nil, &problem{"invalid scope " + quote.Text(name), hintScope}
	}
	container, ok := strings.CutPrefix(name, "container.")
	switch {
	case !ok:
		return nil, unknownScope(name)
	case !isLabel(container):
		return nil, &problem{
			"invalid container name " + quote.Text(container),
			hintLabel,
		}
	}
	if r.named == nil {
		r.named = map[string]*request{}
	}
	if r.named[container] == nil {
		r.named[container] = &request{}
	}
	return r.named[container], nil
}

func orNew(r **request) *request {
	if *r == nil {
		*r = &request{}
	}
	return *r
}

func unknownScope(name string) *problem {
	p := &problem{"unknown scope " + quote.Text(name), spelling.Hint(name, "containers", "pod-total")}
	if container, ok := strings.CutPrefix(name, "containers."); ok && isLabel(container) {
		p.hint = "did you mean " + quote.Text("container."+container) + "?"
	}
	if p.hint == "" {
		p.hint = "write container.NAME, containers or pod-total"
	}
	return p
}

// hintLabel is what isLabel wants.
const hintLabel = "use at most 63 of a-z, 0-9 and -, not starting or ending with -"

// isLabel reports whether s is a DNS label (RFC 1123), as the names of containers
// and of volumes are.
func isLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-'
	})
}

// parseWeight parses the value of a weight annotation, "500".
func parseWeight(key, value string) *weightRequest {
	w := &weightRequest{key: key}
	text := strings.TrimSpace(value)
	v, err := strconv.ParseUint(text, 10, 32)
	switch {
	case text == "":
		w.err = &Error{Annotation: key, Cause: "the value is empty", Hint: "write a whole number from 1 to 10000, or remove the annotation"}
	case len(value) > maxValue:
		w.err = &Error{Annotation: key, Cause: "the value is longer than 64 KiB"}
	case err != nil || v < 1 || v > 10000:
		w.err = &Error{
			Annotation: key, Text: value,
			Cause: "invalid weight", Hint: "write a whole number from 1 to 10000; the default is 100",
		}
	default:
		w.value = uint32(v)
	}
	return w
}

// Empty reports whether no annotation has the plugin's domain.
func (r *Request) Empty() bool { return r == nil || r.first == "" }

// Paths returns the paths in a container that some scope has a target at,
// sorted and distinct. It must not be changed.
func (r *Request) Paths() []string {
	if r.Empty() {
		return nil
	}
	return r.paths
}

// Volumes returns the names of the pod's volumes that some scope has for a
// target, sorted and distinct. It must not be changed.
func (r *Request) Volumes() []string {
	if r.Empty() {
		return nil
	}
	return r.volumes
}

// Star reports whether some scope has "*" for a target.
func (r *Request) Star() bool { return !r.Empty() && r.star }

// Rootfs reports whether a target of some scope may mean the writable layer.
func (r *Request) Rootfs() bool { return !r.Empty() && (r.star || r.rootfs) }

// StarOf reports whether a "*" applies to the container with this name, in its own scope,
// in containers, or in pod-total. Every future source of "*" must be included here, or
// undeclared disks are missed.
func (r *Request) StarOf(container string) bool {
	return r.Star() && (r.each.hasStar() || r.total.hasStar() || r.named[container].hasStar())
}

func (q *request) hasStar() bool { return q != nil && q.star }

// ContainerNames returns the containers that have annotations of their own,
// sorted. Whether they will come cannot be known when the first one is made.
func (r *Request) ContainerNames() []string {
	if r.Empty() {
		return nil
	}
	return slices.Sorted(maps.Keys(r.named))
}

// errors returns what is wrong with the annotations of one scope, whatever the
// node and its policy.
func (q *request) errors() []*Error {
	if q == nil {
		return nil
	}
	var errs []*Error
	if q.limits != nil {
		errs = append(errs, q.limits.errors...)
	}
	if q.weight != nil && q.weight.err != nil {
		errs = append(errs, q.weight.err)
	}
	if q.class != nil {
		errs = append(errs, q.class)
	}
	return errs
}
