package policy

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// ClaimVolume is a volume of a pod, as the API server or a manifest has it: a claim, or one of another kind whose name the runtime does
// not see.
type ClaimVolume struct {
	Name   string  `json:"name"`             // in the pod
	Claim  string  `json:"claim,omitempty"`  // "" for none; for an ephemeral volume, that of the generated claim
	Places []Place `json:"mounts,omitempty"` // sorted in a document
	// Limits is the text of the claim's annotation; nil without one.
	Limits *string `json:"limits,omitempty"`
	// Class is the VolumeAttributesClass that the claim asks for, nil without one. Whether the CSI driver has applied it does not
	// matter: the plugin enforces the rates itself.
	Class *ClaimClass `json:"class,omitempty"`
	// Size is the size of the claim in bytes, zero if it is unknown. Limits and rates of the class may grow with it.
	Size int64 `json:"size,omitempty"`
	// Attachment has the limits that the storage driver wrote for the volume on this node, nil without any.
	Attachment *ClaimAttachment `json:"attachment,omitempty"`
	// Omitted has the parts of the limits that are unknown, each with the reason.
	Omitted map[string]string `json:"omitted,omitempty"`
}

// Place is where a container has a volume.
type Place struct {
	Container string `json:"container"`
	Path      string `json:"path"` // absolute and clean; of a device for a raw block volume
}

// Compare orders places by container and path.
func (p Place) Compare(o Place) int {
	return cmp.Or(strings.Compare(p.Container, o.Container), strings.Compare(p.Path, o.Path))
}

// ClaimClass is the VolumeAttributesClass of a claim, with the rates among its parameters.
type ClaimClass struct {
	Name string `json:"name"`
	// Rates has the text of each rate by the key of the parameter, see [annotation.Parameters].
	Rates map[string]string `json:"rates,omitempty"`
}

// ClaimAttachment is the part of a VolumeAttachment that limits a claim.
type ClaimAttachment struct {
	Driver string `json:"driver"`
	// Rates has the text of each rate by the key in the metadata, see [annotation.DriverKeys].
	Rates map[string]string `json:"rates,omitempty"`
}

// Claims has the claims of a pod: where its containers have them, and their own limits. It also has where the volumes of other kinds
// are whose names the runtime does not see. It does not change. The claims and volumes of a pod are unknown for nil.
type Claims struct {
	unknown string // the reason why they are unknown; "" if they are known
	list    []claim
	volumes []string                 // names of all volumes, sorted, distinct
	at      map[string][]volumePlace // where each container has them
}

// volumePlace is where a container has a volume.
type volumePlace struct{ volume, path string }

// claim is one claim of a pod.
type claim struct {
	name   string
	places []Place
	// own has the limits of the claim itself: of its annotation, of its class and of its storage driver, each key once. It is nil for
	// none, and with err.
	own []*annotation.List
	// err is the reason why the limits do not count: they do as a whole or not at all.
	err *annotation.Error
	// ofPod is the reason why the annotation is ignored: it is that of a pod. It is nil for none.
	ofPod *annotation.Error
}

// UnknownClaims returns claims that are unknown for a reason.
func UnknownClaims(reason string) *Claims { return &Claims{unknown: reason} }

// NewClaims returns the claims of a pod with these volumes.
func NewClaims(volumes []ClaimVolume) *Claims {
	out := &Claims{}
	for i := range volumes {
		v := &volumes[i]
		out.place(v)
		if v.Claim == "" {
			continue
		}
		if k, found := out.find(v.Claim); found { // two volumes of one claim
			out.list[k].places = append(out.list[k].places, v.Places...)
			continue
		}
		c := claim{name: v.Claim, places: slices.Clone(v.Places)}
		if c.own, c.err = v.limits(); c.err != nil && c.err.Reason == annotation.OfPod {
			plain := *v
			plain.Limits = nil
			c.ofPod = c.err
			c.own, c.err = plain.limits()
		}
		out.list = append(out.list, c)
		slices.SortFunc(out.list, func(a, b claim) int { return strings.Compare(a.name, b.name) })
	}
	for i := range out.list {
		c := &out.list[i]
		slices.SortFunc(c.places, Place.Compare)
		c.places = slices.Compact(c.places)
	}
	slices.Sort(out.volumes)
	out.volumes = slices.Compact(out.volumes)
	return out
}

// place adds the name and the places of a volume.
func (c *Claims) place(v *ClaimVolume) {
	c.volumes = append(c.volumes, v.Name)
	for _, p := range v.Places {
		if c.at == nil {
			c.at = map[string][]volumePlace{}
		}
		c.at[p.Container] = append(c.at[p.Container], volumePlace{v.Name, p.Path})
	}
}

// volumeNames returns the names of the volumes that are known, sorted.
func (c *Claims) volumeNames() []string {
	if c == nil {
		return nil
	}
	return c.volumes
}

// volumesOf returns where a container has the volumes of the pod, as far as that is known.
func (c *Claims) volumesOf(container string) []volumePlace {
	if c == nil {
		return nil
	}
	return c.at[container]
}

// limits parses the limits of the claim itself.
func (v *ClaimVolume) limits() ([]*annotation.List, *annotation.Error) {
	if parts := slices.Sorted(maps.Keys(v.Omitted)); len(parts) > 0 {
		reason := v.Omitted[parts[0]]
		return nil, annotation.New(
			annotation.Identity{From: annotation.Origin{Claim: v.Claim}, Subject: reason, Reason: annotation.UnknownClaim},
			&annotation.Problem{Cause: "the limits are unknown: " + reason})
	}
	var out []*annotation.List
	var err *annotation.Error
	add := func(l *annotation.List, e *annotation.Error) {
		for _, earlier := range out {
			l = l.Without(earlier)
		}
		if err = cmp.Or(err, e); l != nil {
			out = append(out, l)
		}
	}
	if v.Limits != nil {
		add(annotation.ParseClaim(v.Claim, *v.Limits, v.Size))
	}
	if c := v.Class; c != nil {
		add(annotation.ParseRates(v.Claim, c.Name, c.Rates, v.Size))
	}
	if a := v.Attachment; a != nil {
		add(annotation.ParseDriver(v.Claim, a.Driver, a.Rates))
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// all returns the claims that are known.
func (c *Claims) all() []claim {
	if c == nil {
		return nil
	}
	return c.list
}

// find returns the index of a claim.
func (c *Claims) find(name string) (int, bool) {
	return slices.BinarySearchFunc(c.all(), name, func(c claim, name string) int { return strings.Compare(c.name, name) })
}

// names returns the names of the claims, sorted.
func (c *Claims) names() []string {
	var out []string
	for _, one := range c.all() {
		out = append(out, one.name)
	}
	return out
}

// Known reports whether the claims are known.
func (c *Claims) Known() bool { return c != nil && c.unknown == "" }

// Equal reports whether two values have the same claims with the same limits.
func (c *Claims) Equal(o *Claims) bool {
	return c == o || c != nil && o != nil && reflect.DeepEqual(c, o)
}

// Changed returns the names of those claims that have other limits of their own than before, sorted.
func (c *Claims) Changed(former *Claims) (names []string) {
	limits := func(of *Claims, name string) (limits claim) {
		if i, found := of.find(name); found {
			limits.own, limits.err, limits.ofPod = of.list[i].own, of.list[i].err, of.list[i].ofPod
		}
		return limits
	}
	all := slices.Concat(c.names(), former.names())
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		if !reflect.DeepEqual(limits(c, name), limits(former, name)) {
			names = append(names, name)
		}
	}
	return names
}

// HasLimits reports whether some claim has limits of its own, valid or not.
func (c *Claims) HasLimits() bool {
	return slices.ContainsFunc(c.all(), func(c claim) bool { return c.hasLimits() })
}

func (c *claim) hasLimits() bool { return len(c.own) > 0 || c.err != nil || c.ofPod != nil }

// places returns the paths at which a container has a claim.
func (c *Claims) places(claim, container string) (out []string) {
	if i, found := c.find(claim); found {
		for _, p := range c.list[i].places {
			if p.Container == container {
				out = append(out, p.Path)
			}
		}
	}
	return out
}

// sourceFor returns the source of limits of a claim that a container has, and false if there are none.
func (c *Claims) sourceFor(container string) (Source, bool) {
	for _, x := range c.all() {
		if len(x.own) > 0 && len(c.places(x.name, container)) > 0 {
			return sourceOfClaim(x.own[0]), true
		}
	}
	return Source{}, false
}

// sourceOfClaim returns the source of the limits of a claim itself.
func sourceOfClaim(l *annotation.List) Source {
	if l.From.Driver != "" {
		return Source{Kind: FromDriver, Name: claimName(l.From.Claim, l.From.Driver)}
	}
	return Source{Kind: FromClaim, Name: claimName(l.From.Claim, l.From.Class)}
}

// targets returns the paths of the claims that have limits of their own, and of the volumes that are named.
func (c *Claims) targets(named []string) annotation.Targets {
	if c == nil {
		return annotation.Targets{}
	}
	var paths []string
	for _, x := range c.list {
		if x.hasLimits() {
			for _, p := range x.places {
				paths = append(paths, p.Path)
			}
		}
	}
	for _, places := range c.at {
		for _, p := range places {
			if _, isNamed := slices.BinarySearch(named, p.volume); isNamed {
				paths = append(paths, p.path)
			}
		}
	}
	slices.Sort(paths)
	return annotation.Targets{Paths: slices.Compact(paths)}
}

// withoutLimits returns the claims without limits of their own.
func (c *Claims) withoutLimits() *Claims {
	out := *c
	out.list = slices.Clone(c.list)
	for i := range out.list {
		out.list[i].own, out.list[i].err, out.list[i].ofPod = nil, nil, nil
	}
	return &out
}

// claims evaluates the limits that the claims of a container have of their own. Their author need not be that of the pod, so
// what does not count is a warning, and rejects no container.
func (e *evaluation) claims(cs []Container) {
	if !e.pod.claims.HasLimits() {
		return
	}
	for i := range e.pod.claims.list {
		c := &e.pod.claims.list[i]
		if !slices.ContainsFunc(c.places, func(p Place) bool { return p.Container == cs[0].Name }) {
			continue
		}
		if c.ofPod != nil {
			e.warnings.add(warning{what: c.ofPod.From.String(), text: c.ofPod.WithoutOrigin()})
			e.out.warned(IgnoredAnnotations)
		}
		if err := e.pod.checkClaim(c); err != nil {
			e.out.Claims = append(e.out.Claims, err)
			e.warnings.add(warning{what: err.From.String(), text: err.WithoutOrigin()})
			e.out.warned(ClaimNotEnforced)
			continue
		}
		for _, l := range c.own {
			e.entries(l, cs, scopeClaim)
		}
	}
}

// checkClaim returns the reason why the limits of a claim do not count for the pod, or nil.
func (p *Pod) checkClaim(c *claim) *annotation.Error {
	if c.err != nil {
		return c.err
	}
	for _, l := range c.own {
		if err := p.checkEntry(l, &l.Entries[0]); err != nil {
			return err
		}
	}
	return nil
}

// ClaimNotEnforced is the kind of the warning that limits of a claim do not count, or cannot be enforced.
const ClaimNotEnforced blkio.WarningKind = "claim_not_enforced"

// claim applies the limits of a claim to the places where containers have it.
func (e *evaluation) claim(cs []Container) {
	for i := range cs {
		for _, at := range e.pod.claims.places(e.entry.Target.Claim, cs[i].Name) {
			if k := e.index(cs, i).at(at); k >= 0 {
				e.explicit(&cs[i], &cs[i].Mounts[k].Backing, at)
			} else {
				e.warn(quote.Text(at) + " is on no mount of the container")
				e.unenforced("", "")
			}
		}
	}
}
