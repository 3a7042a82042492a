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

// count returns the number of values that were decided.
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
	if len(d.Errors) == 0 {
		return d, nil
	}
	for _, err := range d.Errors {
		if e.pod.Action(err) == Reject {
			return d, err
		}
	}
	return d, d.Errors[0]
}
