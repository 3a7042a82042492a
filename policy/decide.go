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

// Backstop returns the sum of the limits of a pod's containers, by disk and key. It leaves
// out a disk and key for which a container has no limit, or for which the sum is larger
// than the kernel takes. A container that does not use the disk adds nothing to the sum: it
// can still write there, to a file that another container of the pod has opened for it, or
// below /proc/PID/root if they share their processes.
//
// The backstop bounds the pod, whichever of its cgroups owns the writeback of a file. A
// lower pod-total replaces it, see Settings.Lowest. A pod-total of max does not.
func Backstop(containers []Desired) Settings {
	var all, out Settings
	for i := range containers {
		all = append(all, containers[i].Settings...)
	}
	for _, s := range NewSettings(all...) {
		if !s.Key.IsRate() {
			continue // shares have no sum
		}
		if sum := sumOf(containers, s.Address); sum != blkio.Unset {
			out = append(out, Setting{Value: blkio.Value{Address: s.Address, Amount: sum}, Source: Source{Kind: FromBackstop}})
		}
	}
	return out
}

// sumOf returns the sum of the limits of one key on one disk. It is Unset if a container has no limit there, or if the sum exceeds the
// largest limit.
func sumOf(containers []Desired, at blkio.Address) blkio.Amount {
	most := at.Key.Most()
	var sum blkio.Amount
	for i := range containers {
		amount := containers[i].limitAt(at)
		if amount > most-sum {
			return blkio.Unset
		}
		sum += amount
	}
	return sum
}

// limitAt returns the limit of a container at an address: 0 if it is known not to use the disk, and blkio.Max if it has no limit
// there.
func (d *Desired) limitAt(at blkio.Address) blkio.Amount {
	switch s, found := d.Settings.Get(at); {
	case found:
		return s.Amount
	case !d.Covers[at.Key] || d.uses(at):
		return blkio.Max
	}
	return 0
}

// uses reports whether an address is one of Uses, which are sorted.
func (d *Desired) uses(at blkio.Address) bool {
	_, found := slices.BinarySearchFunc(d.Uses, at, func(u Use, at blkio.Address) int { return u.Address().Compare(at) })
	return found
}

// cover notes that the current entry for "*" is about each disk of a container.
func (e *evaluation) cover() {
	for k, amount := range e.values {
		e.out.Covers[k] = e.out.Covers[k] || amount != blkio.Unset && e.scope != scopeTotal
	}
}
