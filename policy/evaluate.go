package policy

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Container decides the limits and the weight of one container.
//
// An error is an *annotation.Error. It is the first error that p rejects. If p rejects
// none, it is the first of all. Errors about the whole pod come first, then those of
// container.NAME, of containers, and of pod-total. Desired.Errors has all of them. With an
// error, Desired has all that could be decided: a wrong entry is left out, and of two paths
// in conflict the lower value holds. So a caller that ignores the error enforces the rest.
func (p *Policy) Container(r *annotation.Request, c Container) (Desired, error) {
	if r.Empty() {
		return Desired{}, nil
	}
	e, cs := evaluation{policy: p}, []Container{c}
	e.fail(r.PodWide()...)
	if named := r.Named(c.Name); named != nil {
		e.request(named, cs, scopeNamed)
	}
	if r.Each() != nil {
		e.request(r.Each(), cs, scopeEach)
	}
	e.fail(p.check(r.Total())...)
	d, err := e.desired()
	if !c.MemoryLimited && d.Settings.LimitWrites() {
		p.guard(&d, &c)
	}
	return d, err
}

// guard sets memory.high, or adds a warning, for a write limit without a memory limit that
// bounds dirty pages.
func (p *Policy) guard(d *Desired, c *Container) {
	high := c.Guarded
	if c.Stage == Created {
		if high = p.Writeback.DirtyGuard; high != 0 {
			value := blkio.Value{Address: blkio.Address{Key: blkio.MemoryHigh}, Amount: blkio.Amount(high)}
			d.Settings = d.Settings.Join(Settings{{value, Source{Kind: FromRule, Name: "writeback.dirtyGuard"}}})
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

// noMemoryLimit warns of what docs/explanation/writeback.md has measured: one such writer made
// another one's 96 MiB take 67 s instead of 1 s.
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

// PodTotal decides the settings of the pod's cgroup, from the disks of the containers that
// are known, in any order. It skips containers without the mount of a path. The error, and
// the result with it, are as for Container, but for pod-total alone.
func (p *Policy) PodTotal(r *annotation.Request, cs []Container) (Desired, error) {
	if r.Empty() || r.Total() == nil {
		return Desired{}, nil
	}
	byName := func(a, b Container) int { return cmp.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(cs, byName) {
		cs = slices.SortedFunc(slices.Values(cs), byName) // the same error, whatever the order
	}
	e := evaluation{policy: p}
	e.request(r.Total(), cs, scopeTotal)
	return e.desired()
}

// Check returns the errors of a request that do not depend on the containers and their
// disks. They are in the order of Container, with the containers sorted by name.
func (p *Policy) Check(r *annotation.Request) []*annotation.Error {
	if r.Empty() {
		return nil
	}
	errs := slices.Clone(r.PodWide())
	for _, name := range r.ContainerNames() {
		errs = append(errs, p.check(r.Named(name))...)
	}
	return slices.Concat(errs, p.check(r.Each()), p.check(r.Total()))
}

// CheckRuntime returns an error if the pod's runtime handler is not known to share the
// host's kernel. In a virtual machine, device numbers have another meaning.
func (p *Policy) CheckRuntime(r *annotation.Request, handler string) error {
	if r.Empty() || slices.Contains(p.HostKernelHandlers, handler) {
		return nil
	}
	return &annotation.Error{
		Annotation: r.First(),
		Cause:      "the runtime handler " + quote.Text(handler) + " is not in hostKernelHandlers of the node policy: its device numbers may differ from the node's",
		Hint:       "remove the annotation, or add the handler to hostKernelHandlers",
		Kind:       annotation.Unenforceable,
	}
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
	case e.Kind == annotation.Unenforceable:
		return p.OnError.Unenforceable
	case e.Kind == annotation.Internal:
		return p.OnError.Internal
	default:
		return p.OnError.Invalid
	}
}

// check returns the errors of one scope that need no container.
func (p *Policy) check(q *annotation.Scope) []*annotation.Error {
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
	return errs
}

// checkFloor refuses a rate so low that the container could not be killed.
func (p *Policy) checkFloor(l *annotation.List, en *annotation.Entry) *annotation.Error {
	for k, rate := range en.Limits {
		key, floor := blkio.Key(k), p.Floors.of(blkio.Key(k))
		if rate == blkio.Unset || rate >= floor {
			continue
		}
		return l.ErrorOf(en, annotation.Invalid, &annotation.Problem{
			Cause: key.String() + "=" + annotation.FormatAmount(key, rate) + " is under this node's floor",
			Hint:  "write at least " + annotation.FormatAmount(key, floor),
		})
	}
	return nil
}

// DropWeight takes out a weight on a node whose kernel cannot hold any, and returns the error
// for it, or nil.
func (d *Desired) DropWeight() *annotation.Error {
	weights := d.Settings.In(blkio.IOWeight)
	if len(weights) == 0 {
		return nil
	}
	weight := weights[0]
	d.Settings, d.Weighted = d.Settings.Without(weights), nil
	return &annotation.Error{
		Annotation: weight.Source.Name,
		Text:       weight.Amount.String(),
		Cause:      "this node's kernel has no io.weight",
		Hint:       "use limits, or a node whose kernel has CONFIG_BLK_CGROUP_IOCOST",
		Kind:       annotation.Unenforceable,
	}
}

func sourceOf(l *annotation.List, en *annotation.Entry) Source {
	if en.Number == 0 { // a weight without a target
		return Source{Kind: FromAnnotation, Name: l.Key}
	}
	return Source{FromAnnotation, l.Key, en.Number, en.Target.Kind == annotation.TargetStar, clip(en.Target.Text)}
}

// clip cuts a target.
func clip(s string) string { return quote.Clip(s, maxTarget) }
