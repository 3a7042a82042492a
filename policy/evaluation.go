package policy

import (
	"slices"
	"strconv"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// scope orders the scopes of annotations; of two values for one disk and key
// the lower one wins.
type scope uint8

const (
	scopeNamed scope = iota
	scopeEach
	scopeTotal
)

// evaluation gathers the decision for one cgroup.
type evaluation struct {
	policy   *Policy
	rows     []row
	weight   *annotation.Weight // nil for none
	out      Desired
	skipped  distinct[Skipped]
	warnings distinct[warning]
	indexes  []*MountIndex // of the containers; see index

	current
}

// current is the entry that is being evaluated.
type current struct {
	scope  scope
	limits *annotation.Limits
	entry  *annotation.Entry
	clash  bool // it is in conflict with another, which is reported
	missed bool // it has a target without a disk, which is reported
}

// warning is that a limit on what does not hold for everything.
type warning struct{ what, text string }

// row is what was decided so far for one disk.
type row struct {
	disk  blkio.Disk
	cells [blkio.NumLimits]cell
}

// cell is one value and where it came from; entry is nil where it is unset.
type cell struct {
	rate   blkio.Amount
	scope  scope
	limits *annotation.Limits
	entry  *annotation.Entry
}

func (e *evaluation) fail(errs ...*annotation.Error) { e.out.Errors = append(e.out.Errors, errs...) }

// request evaluates one scope over the containers that it is about.
func (e *evaluation) request(q *annotation.Scope, cs []Container, s scope) {
	e.fail(q.Errors()...)
	if err := e.policy.checkWeight(q.Weight); err != nil {
		e.fail(err)
	} else if w := q.Weight; w != nil && w.Value != 0 && e.weight == nil {
		e.weight = w
	}
	if q.Limits == nil {
		return
	}
	for i := range q.Limits.Entries {
		e.current = current{scope: s, limits: q.Limits, entry: &q.Limits.Entries[i]}
		if err := e.policy.checkFloor(e.limits, e.entry); err != nil {
			e.fail(err)
			continue
		}
		switch e.entry.Target.Kind {
		case annotation.TargetPath:
			e.path(cs)
		case annotation.TargetVolume:
			e.volume(cs)
		case annotation.TargetRootfs:
			for i := range cs {
				e.explicit(&cs[i], &cs[i].Rootfs, "rootfs")
			}
		case annotation.TargetStar:
			e.star(cs)
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
		e.fail(e.limits.ErrorOf(e.entry, annotation.Invalid, e.noMount(&cs[0])))
	default:
		e.skip(e.entry.Target.Path, "the container has no mount at this path")
	}
}

// index returns the index of a container's mounts, which are the same for all
// targets of one evaluation.
func (e *evaluation) index(cs []Container, i int) *MountIndex {
	if e.indexes == nil {
		e.indexes = make([]*MountIndex, len(cs))
	}
	if e.indexes[i] == nil {
		e.indexes[i] = IndexMounts(cs[i].Mounts)
	}
	return e.indexes[i]
}

// BackingOf returns the backing of a path that m covers: that of the longest of m and the
// mounts below it that covers the path.
func (m *Mount) BackingOf(path string) *blkio.Backing {
	best, longest := &m.Backing, 0
	for i := range m.Below {
		if b := &m.Below[i]; len(b.Path) > longest && covers(b.Path, path) {
			best, longest = &b.Backing, len(b.Path)
		}
	}
	return best
}

func covers(dir, path string) bool {
	for len(dir) > 0 && dir[len(dir)-1] == '/' {
		dir = dir[:len(dir)-1]
	}
	return len(path) >= len(dir) && (len(path) == len(dir) || path[len(dir)] == '/') && path[:len(dir)] == dir
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

// explicit applies an entry to one target that it names. If the target has no disk, that is
// an error, once for all containers.
func (e *evaluation) explicit(c *Container, b *blkio.Backing, what string) {
	if len(b.Disks) > 0 {
		e.apply(b, what, e.entry.Limits)
		return
	}
	if !asks(e.entry.Limits) {
		e.skip(what, reason(b)) // no limit asked, and there is none
		return
	}
	if e.missed {
		return
	}
	e.missed = true
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
		return e.limits.ErrorOf(e.entry, annotation.Internal, &annotation.Problem{Cause: what + " cannot be limited now: " + reason(b)})
	}
	return e.limits.ErrorOf(e.entry, annotation.Unenforceable, &annotation.Problem{Cause: what + " cannot be limited: " + reason(b), Hint: hintRemove})
}

// star limits each disk under the root filesystems and the volumes, and those that
// are seen to be used. That some cannot be limited is an error only where nothing is
// left for a key.
func (e *evaluation) star(cs []Container) {
	left := e.entry.Limits // the keys that no disk was found for yet
	skipped, first := 0, Skipped{}
	one := func(c *Container, b *blkio.Backing, what string, lim blkio.Limits) {
		switch {
		case lim.IsZero():
		case b.Err != nil: // it is unknown whether there is a disk
			left = blkio.Limits{}
			if !e.missed && asks(lim) {
				e.missed = true
				e.fail(e.unlimited(c, b, what))
			}
		case len(b.Disks) == 0:
			if s, isNew := e.skip(what, reason(b)); isNew {
				if skipped++; skipped == 1 {
					first = s
				}
			}
		default:
			e.apply(b, what, lim)
			for k, rate := range lim {
				if rate != blkio.Unset {
					left[k] = blkio.Unset
				}
			}
		}
	}
	for i := range cs {
		one(&cs[i], &cs[i].Rootfs, "rootfs", e.entry.Limits)
		for j := range cs[i].Mounts {
			m := &cs[i].Mounts[j]
			lim := e.entry.Limits
			if m.ReadOnly {
				lim[blkio.Wbps], lim[blkio.Wiops] = blkio.Unset, blkio.Unset
			}
			if m.Injected {
				continue
			}
			one(&cs[i], &m.Backing, m.Destination, lim)
			for k := range m.Below {
				// Read-only does not reach further than the mount itself: "ro" is not
				// recursive (mount_setattr(2) is, and runtimes use it for "rro" only).
				one(&cs[i], &m.Below[k].Backing, m.Below[k].Path, e.entry.Limits)
			}
		}
		if len(cs[i].Reached) > 0 {
			one(&cs[i], &blkio.Backing{Disks: cs[i].Reached}, "what it uses", e.entry.Limits)
		}
	}
	if len(cs) > 0 && asks(left) {
		e.fail(e.limits.ErrorOf(e.entry, annotation.Unenforceable, nothingLeft(left, first, skipped)))
	}
}

// hintRemove is what to do about a target that no limit can hold for.
const hintRemove = "remove the entry, or use a volume on a local disk"

// nothingLeft names the keys that found no disk, and the first of the things
// that were skipped for it.
func nothingLeft(left blkio.Limits, first Skipped, skipped int) *annotation.Problem {
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

// asks reports whether limits hold anything but max.
func asks(l blkio.Limits) bool {
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
	s := Skipped{Source: sourceOf(e.limits, e.entry), What: clip(what), Reason: why}
	return s, e.skipped.add(s)
}
