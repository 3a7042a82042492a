package policy

import (
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ContainerKind is the kind of a container that is none of the main containers of its pod.
type ContainerKind string

// The kinds of containers.
const (
	InitContainer      ContainerKind = "init"      // ends before the next container starts
	SidecarContainer   ContainerKind = "sidecar"   // an init container with restartPolicy Always
	EphemeralContainer ContainerKind = "ephemeral" // added to a running pod
)

// kinds returns all kinds, always in the same order.
func kinds() [3]ContainerKind {
	return [...]ContainerKind{InitContainer, SidecarContainer, EphemeralContainer}
}

// ContainerKinds are the kinds of the containers of a pod, by name. Main containers are missing. It is nil while the kinds are
// unknown. The kind of a container never changes.
type ContainerKinds map[string]ContainerKind

// Equal reports whether the same kinds are known.
func (k ContainerKinds) Equal(o ContainerKinds) bool {
	return (k == nil) == (o == nil) && maps.Equal(k, o)
}

// has reports whether a container is of this kind.
func (k ContainerKinds) has(kind ContainerKind) bool {
	for _, of := range k {
		if of == kind {
			return true
		}
	}
	return false
}

// Of returns the containers that are of some of these kinds. It returns nil while the kinds are unknown, and if none is wanted.
func (k ContainerKinds) Of(wanted []ContainerKind) ContainerKinds {
	if k == nil || len(wanted) == 0 {
		return nil
	}
	out := ContainerKinds{}
	for name, kind := range k {
		if slices.Contains(wanted, kind) {
			out[name] = kind
		}
	}
	return out
}

// ContainerKinds returns the kinds for which some rule has a class of its own, or none.
func (p *Policy) ContainerKinds() (out []ContainerKind) {
	for _, kind := range kinds() {
		if slices.ContainsFunc(p.Rules, func(r Rule) bool { _, found := r.KindClasses[kind]; return found }) {
			out = append(out, kind)
		}
	}
	return out
}

// LacksKinds reports whether the rule of a pod has classes for kinds of containers, and the kinds of its containers are unknown.
func (p *Policy) LacksKinds(pod *PodFacts) bool {
	rule := p.ruleFor(pod)
	return pod.Kinds == nil && rule != nil && len(rule.KindClasses) > 0
}

// classOf returns the class that a rule gives to a container, and the source of its values; nil without a class. kind is "" for
// a main container, and for one whose kind is unknown.
func (r *Rule) classOf(kind ContainerKind) (*Class, Source) {
	if r == nil {
		return nil, Source{}
	}
	class, found := r.KindClasses[kind]
	if !found {
		class = r.Class
	}
	return class, r.sources[class]
}

// classes iterates over the classes that a rule gives to containers of a pod with these kinds. One can occur twice.
func (r *Rule) classes(of ContainerKinds) iter.Seq[*Class] {
	return func(yield func(*Class) bool) {
		if r == nil || r.Class != nil && !yield(r.Class) {
			return
		}
		for _, kind := range kinds() {
			if class := r.KindClasses[kind]; class != nil && of.has(kind) && !yield(class) {
				return
			}
		}
	}
}

// hasClassFor reports whether a rule gives a class to some container of a pod with these kinds.
func (r *Rule) hasClassFor(of ContainerKinds) bool {
	for range r.classes(of) {
		return true
	}
	return false
}

// hasClass reports whether a rule gives a class to some container.
func (r *Rule) hasClass() bool {
	if r.Class != nil {
		return true
	}
	for _, class := range r.KindClasses {
		if class != nil {
			return true
		}
	}
	return false
}

// containerClassesDocument is the field containerClasses of a rule.
type containerClassesDocument struct {
	// The class of init containers that end. Values: the name of a class, `none`. Default: that of `class`.
	Init *string `json:"init"`
	// The class of init containers with `restartPolicy: Always`. Values: the name of a class, `none`. Default: that of `class`.
	Sidecar *string `json:"sidecar"`
	// The class of ephemeral containers. Values: the name of a class, `none`. Default: that of `class`.
	Ephemeral *string `json:"ephemeral"`
}

// classes validates the classes that a rule names for kinds of containers.
func (d *containerClassesDocument) classes(v *validator, at *field.Path, known map[string]*Class) map[ContainerKind]*Class {
	var out map[ContainerKind]*Class
	for i, name := range []*string{d.Init, d.Sidecar, d.Ephemeral} {
		if name == nil {
			continue
		}
		if out == nil {
			out = map[ContainerKind]*Class{}
		}
		kind := kinds()[i]
		out[kind] = v.classNamed(at.Child(string(kind)), *name, known)
	}
	return out
}
