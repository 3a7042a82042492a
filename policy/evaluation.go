package policy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// scope orders the scopes of annotations and classes; of two values for one disk and key the
// lower one wins.
type scope uint8

const (
	scopeNamed scope = iota
	scopeEach
	scopeClaim
	scopeClass
	scopeTotal
)

// isLenient reports whether what cannot be enforced is only reported. The values are not of the author of the pod.
func (s scope) isLenient() bool { return s == scopeClaim || s == scopeClass }

// evaluation gathers the decision for one cgroup.
type evaluation struct {
	pod    *Pod
	class  Source // of the values of scopeClass
	rows   []row
	weight cell // for all disks; its entry is nil for none
	weighing
	out      Desired
	skipped  distinct[Skipped]
	warnings distinct[warning]
	indexes  []MountIndex // of the containers; see index

	current
}

// weighing has the disks of weights.
type weighing struct {
	weighted map[blkio.Disk]bool        // see Desired.Weighted
	physical map[blkio.Dev][]blkio.Disk // nil before it is needed; see physicalDisks
}

// current is the entry that is being evaluated.
type current struct {
	scope  scope
	limits *annotation.List
	entry  *annotation.Entry
	clash  bool // it is in conflict with another, which is reported
	missed bool // it has a target without a disk, which is reported

	values     byKey[blkio.Amount] // that it asks for
	containers []Container
}

// warning is the text that a limit on an object does not apply to all of its I/O.
type warning struct{ what, text string }

// byKey has one T for each key of a disk.
type byKey[T any] [blkio.DiskWeight + 1]T

// valuesOf returns the values of an entry.
func valuesOf(en *annotation.Entry) (v byKey[blkio.Amount]) {
	copy(v[:], en.Limits[:])
	v[blkio.DiskWeight] = blkio.Amount(en.Weight)
	return v
}

// row has the decisions so far for one disk.
type row struct {
	disk  blkio.Disk
	cells byKey[cell]
}

// cell is one value and where it came from; entry is nil where it is unset.
type cell struct {
	rate   blkio.Amount
	scope  scope
	limits *annotation.List
	entry  *annotation.Entry
}

func (e *evaluation) fail(errs ...*annotation.Error) { e.out.Errors = append(e.out.Errors, errs...) }

func (e *evaluation) request(q *annotation.Scope, cs []Container, s scope) {
	e.fail(q.Errors()...)
	e.entries(q.Weights, cs, s)
	e.entries(q.Limits, cs, s)
}

func (e *evaluation) entries(l *annotation.List, cs []Container, s scope) {
	if l == nil {
		return
	}
	for i := range l.Entries {
		e.current = current{scope: s, limits: l, entry: &l.Entries[i], values: valuesOf(&l.Entries[i]), containers: cs}
		if !s.isLenient() { // a class was checked with the policy, and a claim as a whole
			if err := e.pod.checkEntry(l, e.entry); err != nil {
				e.fail(err)
				continue
			}
		}
		if e.entry.Weight != 0 && e.entry.Target.Kind == annotation.TargetStar {
			e.weighAll(cs)
			continue
		}
		switch e.entry.Target.Kind {
		case annotation.TargetPath:
			e.path(cs)
		case annotation.TargetVolume:
			e.volume(cs)
		case annotation.TargetClaim:
			e.claim(cs)
		case annotation.TargetRootfs:
			for i := range cs {
				e.explicit(&cs[i], &cs[i].Rootfs, "rootfs")
			}
		case annotation.TargetStar:
			e.star(cs)
		case annotation.TargetDisk:
			e.byName(cs)
		}
	}
}

// path limits the mounts that a path is on. Where it is on no mount of a
// container, that is an error if the annotation names the container.
func (e *evaluation) path(cs []Container) {
	found := false
	for i := range cs {
		x := e.index(cs, i)
		if k := x.Find(e.entry.Target.Path); k >= 0 {
			found = true
			e.explicit(&cs[i], x.backing(k, e.entry.Target.Path), e.entry.Target.Path)
		}
	}
	switch {
	case found:
	case e.scope == scopeNamed:
		e.fail(e.limits.ErrorOf(e.entry, annotation.NoMount, e.noMount(&cs[0])))
	default:
		e.skip(e.entry.Target.Path, "the container has no mount at this path")
	}
}

// index returns the index of a container's mounts, which are the same for all
// targets of one evaluation.
func (e *evaluation) index(cs []Container, i int) *MountIndex {
	if e.indexes == nil {
		e.indexes = make([]MountIndex, len(cs))
	}
	x := &e.indexes[i]
	if x.mounts == nil {
		*x = e.pod.index(&cs[i])
	}
	return x
}

// noMount returns the error for a path on no mount, with a similar path as a hint. It
// searches for one only for the first mistakes: a tenant can make hundreds, in a container
// with a thousand mounts.
func (e *evaluation) noMount(c *Container) *annotation.Problem {
	path := e.entry.Target.Path
	p := &annotation.Problem{Cause: quote.Text(path) + " is on no mount of the container"}
	if len(e.out.Errors) < maxHints {
		var mounts []string
		for i := range c.Mounts {
			if !c.Mounts[i].Injected {
				mounts = append(mounts, c.Mounts[i].Destination)
			}
		}
		p.Hint = spelling.Hint(path, mounts...)
	}
	if p.Hint == "" {
		p.Hint = "write rootfs for the container's own filesystem"
	}
	return p
}

func (e *evaluation) classes(c *Class, from Source, cs []Container) {
	e.class = from
	e.entries(c.weights, cs, scopeClass)
	e.entries(c.limits, cs, scopeClass)
}

// warn adds a warning about the class or the claim.
func (e *evaluation) warn(text string) {
	e.warnings.add(warning{what: e.origin().String(), text: text})
}

// unenforced counts the container as one for which the node cannot enforce a part of its class, or limits of a claim, for a cause
// that lasts. The cause is "" if it does not, or is known otherwise. what is the target, "" for "*".
func (e *evaluation) unenforced(what, cause string) {
	kind := NotEnforced
	if e.scope == scopeClaim {
		kind = ClaimNotEnforced
	}
	e.out.warned(kind)
	if cause != "" {
		e.out.unenforced(annotation.Identity{From: e.origin(), Subject: what, Reason: annotation.NoDisk}, cause)
	}
}

// origin returns the origin of the class or of the claim.
func (e *evaluation) origin() annotation.Origin {
	if e.scope == scopeClaim {
		return e.limits.From
	}
	return e.class.Origin()
}

// unenforced notes that something has no effect, unless it is a default of the policy: the author of the pod did not ask for that.
func (d *Desired) unenforced(of annotation.Identity, cause string) {
	isDefault := of.From.Rule != "" || of.From.Field != ""
	if !isDefault && len(d.Unenforced) < maxUnenforced {
		d.Unenforced = append(d.Unenforced, annotation.New(of, &annotation.Problem{Cause: cause}))
	}
}

// maxUnenforced is the number of reasons in Desired.Unenforced: a pod can have many claims.
const maxUnenforced = 8

// explicit applies an entry to one target that it names. If the target has no disk, that is
// an error, once for all containers.
func (e *evaluation) explicit(c *Container, b *blkio.Backing, what string) {
	if len(b.Disks) > 0 {
		e.apply(b, what, e.values)
		return
	}
	if !hasLimit(e.values) || e.scope.isLenient() && b.Err == nil {
		e.skip(what, reason(b)) // no limit asked, and there is none
		if hasLimit(e.values) {
			e.unenforced(what, quote.Text(what)+" cannot be limited: "+reason(b))
		}
		return
	}
	e.failOnce(c, b, what, e.values)
}

// failOnce reports a target without a disk, or one whose disk is unknown, once for all containers.
func (e *evaluation) failOnce(c *Container, b *blkio.Backing, what string, lim byKey[blkio.Amount]) {
	if e.missed || !hasLimit(lim) {
		return
	}
	e.missed = true
	if e.scope == scopeClaim { // limits of a claim never reject a container
		e.out.Claims = append(e.out.Claims, e.unlimited(c, b, what))
		e.warn(what + " cannot be limited now: " + reason(b))
		e.unenforced("", "")
		return
	}
	e.fail(e.unlimited(c, b, what))
}

// unlimited returns the error for a named target without a disk.
func (e *evaluation) unlimited(c *Container, b *blkio.Backing, what string) *annotation.Error {
	if what != "rootfs" {
		what = quote.Text(what)
	}
	if e.scope == scopeTotal {
		what += " of container " + quote.Text(c.Name)
	}
	if b.Err != nil {
		return e.errorAt(what, annotation.CannotBeLimited, &annotation.Problem{Cause: what + e.cannot(" cannot be limited now: ", " cannot have a weight now: ") + reason(b)})
	}
	return e.errorAt(what, annotation.NoDisk, &annotation.Problem{Cause: what + e.cannot(" cannot be limited: ", " cannot have a weight: ") + reason(b), Hint: e.hintNoDisk()})
}

// errorAt returns an error of the entry about one object: a "*" has many.
func (e *evaluation) errorAt(what string, reason annotation.Reason, p *annotation.Problem) *annotation.Error {
	out := e.limits.ErrorOf(e.entry, reason, p)
	out.Subject = what
	return out
}

// cannot selects the text for the kind of the entry.
func (e *evaluation) cannot(limit, weight string) string {
	if e.entry.Weight != 0 {
		return weight
	}
	return limit
}

// star limits each disk under the root filesystems and the volumes, and those that
// are seen to be used. That some cannot be limited is an error only where nothing is
// left for a key.
func (e *evaluation) star(cs []Container) {
	left := e.values // the keys that no disk was found for yet
	skipped, first := 0, Skipped{}
	for i := range cs {
		for o := range cs[i].starred() {
			lim := e.values
			if o.ReadOnly {
				lim[blkio.Wbps], lim[blkio.Wiops] = blkio.Unset, blkio.Unset
			}
			switch {
			case lim == byKey[blkio.Amount]{}:
			case o.Err != nil: // it is unknown whether there is a disk
				left = byKey[blkio.Amount]{}
				e.failOnce(&cs[i], o.Backing, o.Path, lim)
			case len(o.Disks) == 0:
				if s, isNew := e.skip(o.Path, reason(o.Backing)); isNew {
					if skipped++; skipped == 1 {
						first = s
					}
				}
			default:
				e.apply(o.Backing, o.Path, lim)
				for k, rate := range lim {
					if rate != blkio.Unset {
						left[k] = blkio.Unset
					}
				}
			}
		}
	}
	e.cover()
	switch {
	case len(cs) == 0 || !hasLimit(left):
	case e.scope == scopeClass:
		cause := nothingLeft(left, first, skipped).Cause
		e.warn(cause)
		e.unenforced("", cause)
	default:
		e.fail(e.limits.ErrorOf(e.entry, annotation.NoDisk, nothingLeft(left, first, skipped)))
	}
}

// hintNoDisk returns the hint for a target without a disk. Docker and systemd name the device there.
func (e *evaluation) hintNoDisk() string {
	if p := e.entry.Target.Path; strings.HasPrefix(p, "/dev/") && p != "/dev/shm" {
		return "a target is a path in the container: write the mount path of the volume on that disk"
	}
	return hintRemove
}

// hintRemove is the hint for a target on which no limit can be enforced.
const hintRemove = "remove the entry, or use a volume on a local disk"

// nothingLeft names the keys that found no disk, and the first of the things
// that were skipped for it.
func nothingLeft(left byKey[blkio.Amount], first Skipped, skipped int) *annotation.Problem {
	p := &annotation.Problem{Cause: "no disk to limit", Hint: hintRemove}
	for k, rate := range left {
		if rate != blkio.Unset && rate != blkio.Max {
			p.Cause += " " + blkio.Key(k).String()
		}
	}
	if skipped > 0 {
		p.Cause += " on: " + quote.Name(first.What, quote.Most) + ": " + first.Reason
	}
	if more := skipped - 1; more > 0 {
		p.Cause += ", and " + strconv.Itoa(more) + " more"
	}
	return p
}

// hasLimit reports whether limits hold anything but max.
func hasLimit(l byKey[blkio.Amount]) bool {
	return slices.ContainsFunc(l[:], func(r blkio.Amount) bool { return r != blkio.Unset && r != blkio.Max })
}

func reason(b *blkio.Backing) string {
	if b.Reason == "" {
		return "no disk found below it"
	}
	return quote.Clip(b.Reason, maxReason)
}

// skip notes a target that cannot be limited, and reports whether that is news.
func (e *evaluation) skip(what, why string) (_ Skipped, isNew bool) {
	c := e.cell(0)
	s := Skipped{Source: e.sourceOf(&c), What: clip(what), Reason: why}
	return s, e.skipped.add(s)
}
