package policy

import (
	"slices"
	"strconv"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// cell is the value that the current entry asks for.
func (e *evaluation) cell(rate blkio.Amount) cell {
	return cell{rate: rate, scope: e.scope, limits: e.limits, entry: e.entry}
}

// apply sets limits on each disk of b, as far as nothing of higher precedence
// is there.
func (e *evaluation) apply(b *blkio.Backing, what string, lim byKey[blkio.Amount]) {
	disks := e.disksOf(b)
	if e.isOutweighed() {
		disks = nil
	}
	for _, d := range disks {
		r := e.row(d)
		for k, rate := range lim {
			if rate != blkio.Unset {
				e.set(r, blkio.Key(k), rate)
			}
		}
	}
	if b.Warning != nil && hasLimit(lim) {
		e.warnings.add(warning{what: clip(what), text: b.Warning.Text})
		e.out.warned(b.Warning.Kind)
	}
}

func (e *evaluation) row(d blkio.Disk) *row {
	for i := range e.rows {
		if e.rows[i].disk.Dev == d.Dev {
			return &e.rows[i]
		}
	}
	e.rows = append(e.rows, row{disk: d})
	return &e.rows[len(e.rows)-1]
}

// set decides between the value of a disk's key and another one. The earlier scope wins. In one scope, a path
// and a volume win over rootfs, rootfs wins over disk:GLOB, and that over "*". Of several disk:GLOB the first
// one wins. Two paths or volumes with different values are a conflict.
func (e *evaluation) set(r *row, k blkio.Key, rate blkio.Amount) {
	c := &r.cells[k]
	switch {
	case c.entry == nil:
	case c.scope < e.scope, c.entry == e.entry:
		return
	case c.entry.Target.Rank() > e.entry.Target.Rank():
		return
	case c.entry.Target.Rank() < e.entry.Target.Rank():
	case c.rate == rate && c.entry.Burst(k) == e.entry.Burst(k), e.entry.Target.Kind == annotation.TargetDisk:
		return
	default:
		problem := conflict(r.disk, k, c, e.entry, rate)
		switch {
		case e.scope.isLenient(): // no mistake: the same class may fit on other nodes, and the claims on other disks
			e.warn(problem.Cause + ": the lower value holds")
		case !e.clash:
			e.clash = true
			e.fail(e.errorAt(r.disk.Name, annotation.Conflict, problem))
		}
		if rate >= c.rate {
			return
		}
	}
	*c = e.cell(rate)
}

func conflict(d blkio.Disk, k blkio.Key, c *cell, en *annotation.Entry, rate blkio.Amount) *annotation.Problem {
	const limit = quote.Most - 15 // two of them, and the disk
	other := quote.Within(c.entry.Target.Name(), limit)
	if c.entry.Number > 0 { // not of a claim
		other += " in entry " + strconv.Itoa(c.entry.Number)
	}
	return &annotation.Problem{
		Cause: "conflicting " + k.String() + " on " + d.String() + ": " +
			quote.Within(en.Target.Name(), limit) + " has " + amountText(k, rate, en) + ", " + other + " has " + amountText(k, c.rate, c.entry),
		Hint: "write one value for both",
	}
}

// amountText formats the amount of a key in an entry, with its burst.
func amountText(k blkio.Key, amount blkio.Amount, en *annotation.Entry) string {
	text := annotation.FormatAmount(k, amount)
	if b := en.Burst(k); !b.IsZero() {
		text += " with a burst of " + annotation.FormatBurst(k, b)
	}
	return text
}

// hasUnknown reports whether it is unknown which disks a container uses.
func (e *evaluation) hasUnknown() bool {
	return slices.ContainsFunc(e.out.Errors, func(err *annotation.Error) bool { return err.Kind() == annotation.Internal })
}

func (e *evaluation) count() (n int) {
	isSet := func(c *cell) {
		if c.entry != nil {
			n++
		}
	}
	for i := range e.rows {
		for k := range e.rows[i].cells {
			isSet(&e.rows[i].cells[k])
		}
	}
	isSet(&e.weight)
	return n
}

// desired closes the evaluation.
func (e *evaluation) desired() (Desired, error) {
	d := e.out
	slices.SortFunc(e.rows, func(a, b row) int { return a.disk.Dev.Compare(b.disk.Dev) })
	if len(e.rows) > 0 {
		d.Disks = make(map[blkio.Dev]string, len(e.rows))
	}
	if n := e.count(); n > 0 {
		d.Settings = make(Settings, 0, n)
	}
	for i := range e.rows {
		disk := &e.rows[i].disk
		d.Disks[disk.Dev] = disk.Name
		for k, c := range e.rows[i].cells {
			if c.entry != nil {
				at := blkio.Address{Key: blkio.Key(k), Dev: disk.Dev}
				d.Settings = append(d.Settings, Setting{Value: blkio.Value{Address: at, Amount: c.rate}, Source: e.sourceOf(&c), Burst: c.entry.Burst(at.Key)})
			}
		}
	}
	if w := e.weight; w.entry != nil {
		value := blkio.Value{Address: blkio.Address{Key: blkio.Weight}, Amount: w.rate}
		d.Settings = append(d.Settings, Setting{Value: value, Source: e.sourceOf(&w)})
	}
	d.Settings = NewSettings(d.Settings...)
	d.Weighted = e.weightedDisks()
	if e.hasUnknown() {
		d.Covers = byKey[bool]{}
	}
	d.Skipped, d.SkippedMore = e.skipped.kept, len(e.skipped.more)
	for _, w := range e.warnings.kept {
		d.Warnings = append(d.Warnings, quote.ASCII(quote.Name(w.what, maxName)+": "+w.text))
	}
	slices.Sort(d.Warnings)
	d.Warnings = andMore(slices.Compact(d.Warnings), len(e.warnings.more))
	var errs []error
	for _, err := range d.Errors {
		errs = append(errs, err)
	}
	return d, e.pod.First(errs...)
}

// byName limits the disks whose names match a glob: those under the root filesystems and the volumes, those below
// them, and those that are seen to be used. I/O to a disk is I/O to the disks below it as well, and the kernel
// limits it on each.
//
// Other disks of the node get no limit, although the operator writes the entry: the container has no I/O there,
// and each line costs memory in the kernel and room in the record. If it begins to use one, that is seen.
func (e *evaluation) byName(cs []Container) {
	matched, isUnknown := false, false
	for i := range cs {
		c := &cs[i]
		for o := range c.starred() {
			if o.Err != nil { // it is unknown whether there is a disk
				e.failOnce(c, o.Backing, o.Path, e.values)
				continue
			}
			found := blkio.Backing{Warning: o.Warning}
			for _, d := range o.Disks {
				isUnknown = isUnknown || d.Dev.IsUnknown()
				found.Disks = e.appendMatching(found.Disks, c, d)
				for _, below := range c.Under[d.Dev] {
					found.Disks = e.appendMatching(found.Disks, c, below)
				}
			}
			if len(found.Disks) > 0 {
				matched = true
				e.apply(&found, o.Path, e.values)
			}
		}
	}
	switch {
	case matched || e.missed:
	case isUnknown:
		e.skip(e.entry.Target.Text, "only a node shows the names of the disks")
	default:
		e.skip(e.entry.Target.Text, "no disk of the container has such a name")
	}
}

// appendMatching adds a disk whose name the current entry matches.
func (e *evaluation) appendMatching(to []blkio.Disk, c *Container, d blkio.Disk) []blkio.Disk {
	if d.Dev.IsUnknown() || !e.entry.Target.MatchesDisk(d.Name, c.Links[d.Dev]) {
		return to
	}
	return append(to, d)
}

// Bounds of memory, output and work of a decision. Longer lists would
// not be read.
const (
	maxListed = 16  // of one kind in a Desired, or lines of Unmatched
	maxHints  = 16  // mistakes that come with a search for the intended word
	maxTarget = 64  // bytes of a target that is reported
	maxName   = 110 // bytes of a mount that a warning names
	maxReason = 256 // bytes of a reason; a path of the host may be in it
)

// distinct keeps the first values that it gets, and counts further ones. It counts equal
// values once: "*" over many containers has "rootfs" many times.
type distinct[T comparable] struct {
	kept []T
	more map[T]struct{}
}

// add reports whether v is new.
func (d *distinct[T]) add(v T) bool {
	if slices.Contains(d.kept, v) {
		return false
	}
	if len(d.kept) < maxListed {
		d.kept = append(d.kept, v)
		return true
	}
	if _, ok := d.more[v]; ok {
		return false
	}
	if d.more == nil {
		d.more = make(map[T]struct{})
	}
	d.more[v] = struct{}{}
	return true
}

// andMore closes a list that leaves n lines out.
func andMore(lines []string, n int) []string {
	if n == 0 {
		return lines
	}
	return append(lines, "and "+strconv.Itoa(n)+" more")
}
