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

// claim is one claim of a pod.
type claim struct {
	name   string
	places []Place
	claimLimits
}

// claimLimits are the limits that a claim has of its own.
type claimLimits struct {
	// own has the limits of the claim itself: of its annotation, of its class and of its storage driver, each key once. It is nil for
	// none, and with err.
	own []*annotation.List
	// err is the reason why the limits do not count: they do as a whole or not at all.
	err *annotation.Error
	// ofPod is the reason why the annotation is ignored: it is that of a pod. It is nil for none.
	ofPod *annotation.Error
}

func (v *Volume) limits() ([]*annotation.List, *annotation.Error) {
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

// addClaim adds a volume that is a claim. Two volumes can have the same one.
func (v *Volumes) addClaim(of *Volume) {
	if k, found := v.findClaim(of.Claim); found {
		v.claims[k].places = append(v.claims[k].places, of.Places...)
		return
	}
	c := claim{name: of.Claim, places: slices.Clone(of.Places)}
	if c.own, c.err = of.limits(); c.err != nil && c.err.Reason == annotation.OfPod {
		plain := *of
		plain.Limits = nil
		c.ofPod = c.err
		c.own, c.err = plain.limits()
	}
	v.claims = append(v.claims, c)
	slices.SortFunc(v.claims, func(a, b claim) int { return strings.Compare(a.name, b.name) })
}

// knownClaims returns the claims that are known.
func (v *Volumes) knownClaims() []claim {
	if v == nil {
		return nil
	}
	return v.claims
}

func (v *Volumes) findClaim(name string) (int, bool) {
	return slices.BinarySearchFunc(v.knownClaims(), name, func(c claim, name string) int { return strings.Compare(c.name, name) })
}

// ChangedClaims returns the names of those claims that have other limits of their own than before, sorted.
func (v *Volumes) ChangedClaims(former *Volumes) (names []string) {
	limits := func(of *Volumes, name string) claimLimits {
		if i, found := of.findClaim(name); found {
			return of.claims[i].claimLimits
		}
		return claimLimits{}
	}
	var all []string
	for _, c := range slices.Concat(v.knownClaims(), former.knownClaims()) {
		all = append(all, c.name)
	}
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		if !reflect.DeepEqual(limits(v, name), limits(former, name)) {
			names = append(names, name)
		}
	}
	return names
}

// HasLimits reports whether some claim has limits of its own, valid or not.
func (v *Volumes) HasLimits() bool {
	return slices.ContainsFunc(v.knownClaims(), func(c claim) bool { return c.hasLimits() })
}

func (c *claim) hasLimits() bool { return len(c.own) > 0 || c.err != nil || c.ofPod != nil }

// placesOf returns the paths at which a container has a claim.
func (v *Volumes) placesOf(claim, container string) (out []string) {
	if i, found := v.findClaim(claim); found {
		for _, p := range v.claims[i].places {
			if p.Container == container {
				out = append(out, p.Path)
			}
		}
	}
	return out
}

// sourceFor returns the source of limits of a claim that a container has, and false if there are none.
func (v *Volumes) sourceFor(container string) (Source, bool) {
	for _, c := range v.knownClaims() {
		if len(c.own) > 0 && len(v.placesOf(c.name, container)) > 0 {
			return sourceOfClaim(c.own[0]), true
		}
	}
	return Source{}, false
}

func sourceOfClaim(l *annotation.List) Source {
	if l.From.Driver != "" {
		return Source{Kind: FromDriver, Name: claimName(l.From.Claim, l.From.Driver)}
	}
	return Source{Kind: FromClaim, Name: claimName(l.From.Claim, l.From.Class)}
}

// withoutLimits returns the volumes without limits of their own.
func (v *Volumes) withoutLimits() *Volumes {
	out := *v
	out.claims = slices.Clone(v.claims)
	for i := range out.claims {
		out.claims[i].claimLimits = claimLimits{}
	}
	return &out
}

// claims evaluates the limits that the claims of a container have of their own. Their author need not be that of the pod, so
// what does not count is a warning, and rejects no container.
func (e *evaluation) claims(cs []Container) {
	if !e.pod.volumes.HasLimits() {
		return
	}
	for i := range e.pod.volumes.claims {
		c := &e.pod.volumes.claims[i]
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
		for _, at := range e.pod.volumes.placesOf(e.entry.Target.Claim, cs[i].Name) {
			if k := e.index(cs, i).at(at); k >= 0 {
				e.explicit(&cs[i], cs[i].Mounts[k].Backing, at)
			} else {
				e.warn(quote.Text(at) + " is on no mount of the container")
				e.unenforced("", "")
			}
		}
	}
}
