package policy

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Container decides the limits and the weight of one container.
//
// An error is an *annotation.Error. It is the first error that the policy rejects. If it rejects
// none, it is the first of all. Errors about the whole pod come first, then those of
// container.NAME, of containers, of the choice of a class, and of pod-total. Desired.Errors has all
// of them. Errors of limits of claims are in Desired.Claims, and reject nothing. With an error, Desired has all that could be decided: a wrong entry is left out, and of
// two paths in conflict the lower value holds. So a caller that ignores the error enforces the rest.
//
// missing are control files, such as io.max, that the node's kernel does not have. An annotation that needs one cannot be enforced, and
// a class is skipped.
func (p *Pod) Container(c Container, missing ...string) (Desired, error) {
	if p.IsEmpty() {
		return Desired{}, nil
	}
	if p.isForeign {
		return p.foreign(&c)
	}
	e, cs := evaluation{pod: p}, []Container{c}
	e.fail(p.refused...)
	e.scopes(p.request, cs)
	e.fail(p.choiceErrors(c.Name)...)
	e.claims(cs)
	if class, from := p.classOf(c.Name); class != nil {
		e.classes(class, from, cs)
	}
	e.fail(p.check(p.request.Total())...)
	e.uses(c)
	d, err := e.desired()
	p.warnIgnored(&d)
	err = p.First(err, p.drop(&d, missing))
	if !c.MemoryLimited && d.Settings.LimitWrites() {
		p.policy.guard(&d, &c)
	}
	return d, err
}

// scopes evaluates the annotations that are about one container.
func (e *evaluation) scopes(r *annotation.Request, cs []Container) {
	e.fail(r.PodWide()...)
	if named := r.Named(cs[0].Name); named != nil {
		e.request(named, cs, scopeNamed)
	}
	if r.Each() != nil {
		e.request(r.Each(), cs, scopeEach)
	}
}

// foreign returns the decision for a container under a runtime handler that is not known to share
// the host's kernel. A class, and limits of claims, are skipped there.
func (p *Pod) foreign(c *Container) (Desired, error) {
	if err := p.checkRuntime(); err != nil {
		return Desired{}, err
	}
	d := Desired{Errors: p.refused}
	p.warnIgnored(&d)
	if from, found := p.volumes.sourceFor(c.Name); found {
		d.Skipped = append(d.Skipped, Skipped{Source: from, What: "container", Reason: p.foreignCause()})
		d.warned(ClaimNotEnforced)
		d.unenforced(annotation.Identity{From: from.Origin(), Reason: annotation.ForeignHandler}, p.foreignCause())
	}
	if class, from := p.classOf(c.Name); class != nil {
		d.Skipped = append(d.Skipped, Skipped{Source: from, What: "container", Reason: p.foreignCause()})
		d.warned(NotEnforced)
	}
	if len(d.Errors) > 0 {
		return d, d.Errors[0]
	}
	return d, nil
}

func (p *Pod) warnIgnored(d *Desired) {
	p.warnOfClaim(d)
	ignores := func(reason annotation.Reason, text string) {
		cause := strings.TrimPrefix(text, " of ")
		d.Warnings = append(d.Warnings, p.rule.title+text)
		d.Unenforced = append(d.Unenforced, annotation.New(annotation.Identity{From: p.rule.origin(), Reason: reason}, &annotation.Problem{Cause: cause}))
		d.warned(IgnoredAnnotations)
	}
	if d.Ignored = p.ignored; p.ignored {
		ignores(annotation.Ignored, " of the node policy ignores the annotations of the pod")
	}
	if p.ignoresClaims {
		ignores(annotation.IgnoredClaims, " of the node policy ignores the limits of claims")
	}
}

// warnOfClaim adds a warning if the pod has the annotation of a claim. If a claim of the pod has limits, the annotation was meant for that,
// and what is requested is in force.
func (p *Pod) warnOfClaim(d *Desired) {
	err := p.request.OfClaim()
	if err == nil {
		return
	}
	d.Warnings = append(d.Warnings, err.From.String()+": "+err.WithoutOrigin())
	d.warned(IgnoredAnnotations)
	if !p.HasClaimLimits() {
		d.Unenforced = append(d.Unenforced, err)
	}
}

// guard sets memory.high, or adds a warning, for a write limit without a memory limit that
// bounds dirty pages.
func (p *Policy) guard(d *Desired, c *Container) {
	high := c.Guarded
	if c.Stage == Created {
		if high = p.Writeback.DirtyGuard; high != 0 {
			value := blkio.Value{Address: blkio.Address{Key: blkio.MemoryHigh}, Amount: blkio.Amount(high)}
			d.Settings = d.Settings.Join(Settings{{Value: value, Source: Source{Kind: FromRule, Name: "writeback.dirtyGuard"}}})
		}
	}
	if high == 0 {
		d.Warnings = append(d.Warnings, noMemoryLimit)
		d.warned(NoMemoryLimit)
		return
	}
	d.Warnings = append(d.Warnings, fmt.Sprintf("write limit without a memory limit of at most half of the node's memory: "+
		"writeback.dirtyGuard of this node sets its memory.high to %d Mi (set resources.limits.memory)", high>>20))
	d.warned(Guarded)
}

// NoMemoryLimit is the kind of the warning about a write limit without a memory limit.
const NoMemoryLimit blkio.WarningKind = "no_memory_limit"

// Guarded is the kind of the warning that writeback.dirtyGuard has set memory.high.
const Guarded blkio.WarningKind = "guarded"

// NotEnforced is the kind of the warning that the node cannot enforce a part of a class.
const NotEnforced blkio.WarningKind = "class_not_enforced"

// IgnoredAnnotations is the kind of the warning that a rule ignores annotations of the pod, or the limits of its
// claims, that the pod has the annotation of a claim, or a claim that of a pod.
const IgnoredAnnotations blkio.WarningKind = "annotations_ignored"

// noMemoryLimit is a warning. In a measurement of docs/explanation/writeback.md, one such writer made another
// one's 96 MiB take 67 s instead of 1 s.
const noMemoryLimit = "write limit without a memory limit of at most half of the node's memory: " +
	"its dirty pages can block all writers of the node (set resources.limits.memory)"

// NoMemory is a memory limit that is not set.
const NoMemory uint64 = math.MaxUint64

// MemoryBoundsDirty reports whether a memory limit keeps a container from filling the
// node's dirty pages: it is at most half of the node's memory. limit and nodeMemory, the
// node's MemTotal, are in bytes. nodeMemory is 0 if it is unknown; then any limit is small
// enough.
//
// The kernel applies the ratio of its dirty limit to the memory that a cgroup may have as
// well (domain_dirty_limits in mm/page-writeback.c, mem_cgroup_wb_stats in
// mm/memcontrol.c). So with half of the node's memory, a container's dirty pages reach at
// most half of the node's dirty limit. There writeback begins by default
// (dirty_background_ratio), while other writers are throttled only from three quarters on
// (dirty_freerun_ceiling).
func MemoryBoundsDirty(limit, nodeMemory uint64) bool {
	if nodeMemory == 0 {
		return limit != NoMemory
	}
	return limit <= nodeMemory/2
}

func (d *Desired) warned(kind blkio.WarningKind) {
	if !slices.Contains(d.WarningKinds, kind) {
		d.WarningKinds = append(d.WarningKinds, kind)
	}
}

// AsksTotal reports whether the annotations that count ask for settings of the pod's cgroup.
func (p *Pod) AsksTotal() bool { return p.request.Total() != nil }

// Total decides the settings of the pod's cgroup, from the disks of the containers that
// are known, in any order. It skips containers without the mount of a path, and those that
// were rejected: a mount of theirs must not raise the limit of the others. A mount of a late
// one only adds limits for disks on which the others have none. The error, and the result
// with it, are as for Container, but for pod-total alone.
func (p *Pod) Total(cs []Container, missing ...string) (Desired, error) {
	d, err := p.total(cs)
	return d, p.First(err, p.drop(&d, missing))
}

func (p *Pod) total(cs []Container) (Desired, error) {
	if errs := p.refusedTotal(); len(errs) > 0 {
		return Desired{Errors: errs}, errs[0] // for Carry
	}
	if err := p.checkRuntime(); err != nil {
		return Desired{}, err
	}
	if p.request.Total() == nil {
		return Desired{Ignored: p.ignored}, nil
	}
	isLate := func(c Container) bool { return c.Stage == Late }
	isRejected := func(c Container) bool { return c.Stage == Rejected }
	if slices.ContainsFunc(cs, isRejected) {
		cs = slices.DeleteFunc(slices.Clone(cs), isRejected)
	}
	if !slices.ContainsFunc(cs, isLate) {
		return p.totalOf(cs)
	}
	all, _ := p.totalOf(cs)
	out, err := p.totalOf(slices.DeleteFunc(slices.Clone(cs), isLate))
	out.Settings = out.Settings.Join(all.Settings)
	out.Disks = DiskNames(out.Settings, all.Disks, out.Disks)
	return out, err
}

// totalOf decides the settings of the pod's cgroup, from the disks of containers in any order.
func (p *Pod) totalOf(cs []Container) (Desired, error) {
	byName := func(a, b Container) int { return cmp.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(cs, byName) {
		cs = slices.SortedFunc(slices.Values(cs), byName) // the order must not decide which error is returned
	}
	e := evaluation{pod: p}
	e.request(p.request.Total(), cs, scopeTotal)
	return e.desired()
}

// Check returns the errors of the annotations that do not depend on the containers and their
// disks. They are in the order of Container, with the containers sorted by name.
func (p *Pod) Check() []*annotation.Error {
	errs := slices.Concat(p.refused, p.request.PodWide())
	for _, name := range p.request.ContainerNames() {
		errs = append(errs, p.check(p.request.Named(name))...)
	}
	return slices.Concat(errs, p.check(p.request.Each()), p.check(p.request.Total()))
}

// isForeign reports whether a runtime handler is not known to share the host's kernel.
func (p *Policy) isForeign(handler string) bool {
	return !slices.Contains(p.HostKernelHandlers, handler)
}

// Action returns the action for an error. An error of another package counts as internal.
// For nil it returns Ignore.
func (p *Policy) Action(err error) Action {
	var e *annotation.Error
	switch {
	case err == nil:
		return Ignore
	case !errors.As(err, &e):
		return p.OnError.Internal
	case e.Kind() == annotation.Unenforceable:
		return p.OnError.Unenforceable
	case e.Kind() == annotation.Internal:
		return p.OnError.Internal
	default:
		return p.OnError.Invalid
	}
}

// check returns the errors of one scope that need no container, with that of the choice of a class last.
func (p *Pod) check(q *annotation.Scope) []*annotation.Error {
	errs := q.Errors()
	if q == nil {
		return errs
	}
	for _, l := range []*annotation.List{q.Weights, q.Limits} {
		if l == nil {
			continue
		}
		for i := range l.Entries {
			if err := p.checkEntry(l, &l.Entries[i]); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if c := p.choices[q]; c.err != nil {
		errs = append(errs, c.err)
	}
	return errs
}

func (e *evaluation) sourceOf(c *cell) Source {
	out := e.class
	switch c.scope {
	case scopeClass:
	case scopeClaim:
		return sourceOfClaim(c.limits)
	default:
		out = Source{Kind: FromAnnotation, Name: c.limits.From.Annotation, Entry: c.entry.Number}
	}
	if c.entry.Number > 0 { // otherwise it is a weight without a target
		out.IsStar, out.Target = c.entry.Target.Kind == annotation.TargetStar, clip(c.entry.Target.Text)
	}
	return out
}

// clip cuts a target.
func clip(s string) string { return quote.Clip(s, maxTarget) }

// drop takes out the settings in control files that the node's kernel does not have. It returns an *annotation.Error about one that an
// annotation asks for, otherwise nil. Settings of a class or a claim, and the budget for the namespace, are left out with a warning.
func (p *Pod) drop(d *Desired, missing []string) (err error) {
	for _, file := range missing {
		if file == blkio.IOWeight && p.Of().HasBFQ() { // the plugin writes io.bfq.weight
			continue
		}
		err = p.First(err, d.dropFile(file))
	}
	return err
}

func (d *Desired) dropFile(file string) error {
	lost := d.Settings.In(file)
	if lack := lackOf(file); file == blkio.IOMax && len(d.Uses) > 0 {
		d.Uses = nil
		d.Warnings = append(d.Warnings, "the budget of the namespace: "+lack.Cause)
		d.warned(NotEnforced)
	}
	if len(lost) == 0 {
		return nil
	}
	d.Settings = d.Settings.Without(lost)
	if file == blkio.IOWeight {
		d.Weighted = nil
	}
	return d.lose(lost, lackOf(file))
}

// lose reports settings that are left out.
func (d *Desired) lose(lost Settings, lack *annotation.Problem) error {
	if i := slices.IndexFunc(lost, func(s Setting) bool { return s.Source.Kind == FromAnnotation }); i >= 0 {
		s := lost[i]
		of := annotation.Identity{From: s.Source.Origin(), Entry: s.Source.Entry, Text: s.Amount.String(), Reason: annotation.NoControl}
		if s.Key.IsRate() {
			of.Text = s.Key.String() + "=" + annotation.FormatAmount(s.Key, s.Amount)
		}
		return annotation.New(of, lack)
	}
	for i, s := range lost {
		if i > 0 && s.Source.Origin() == lost[i-1].Source.Origin() {
			continue
		}
		kind := NotEnforced
		if s.Source.isOfClaim() {
			kind = ClaimNotEnforced
		}
		if text := s.Source.Text() + ": " + lack.Cause; !slices.Contains(d.Warnings, text) {
			d.Warnings = append(d.Warnings, text)
			d.unenforced(annotation.Identity{From: s.Source.Origin(), Reason: annotation.NoControl}, lack.Cause)
		}
		d.warned(kind)
	}
	return nil
}

// lackOf returns what to report about a control file that the kernel does not have.
func lackOf(file string) *annotation.Problem {
	if file == blkio.IOMax {
		return &annotation.Problem{Cause: NoIOMax, Hint: "use a node whose kernel has it"}
	}
	return &annotation.Problem{Cause: "this node's kernel has no io.weight", Hint: "use limits, a node whose kernel has CONFIG_BLK_CGROUP_IOCOST, or weights: bfq in the node policy"}
}

// NoIOMax is why a node cannot limit at all.
const NoIOMax = "this node's kernel has no io.max (CONFIG_BLK_DEV_THROTTLING)"
