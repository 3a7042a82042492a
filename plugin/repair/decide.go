package repair

import (
	"cmp"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/repair/filestate"
)

// worthwhile is from how many recent bytes on a file is looked at.
const worthwhile = 4 << 10

// work is what a pass is to do to a file.
type work int

const (
	nothing work = iota
	move         // to its desired owner
	drop         // the pages that are charged to others: otherwise the file would go to these
)

// task is a file that is to be worked on.
type task struct {
	*file
	work work
	to   *share
}

// decide puts each file that was written to into its state, and returns those that
// are to be worked on, the most bytes first.
func (l *ledger) decide(now time.Time) []task {
	l.sweep(now)
	var out []task
	for f := range l.touched {
		out = append(out, l.decideOn(now, f)...)
	}
	slices.SortFunc(out, func(a, b task) int { return cmp.Compare(b.to.recent.bytes, a.to.recent.bytes) })
	return out
}

// decideOn is decide for one file.
func (l *ledger) decideOn(now time.Time, f *file) []task {
	w, to := l.workFor(now, f)
	if w == nothing {
		delete(l.touched, f)
		return nil
	}
	return []task{{f, w, to}}
}

// workFor compares the owner of a file with its recent writers, and returns what is to be
// done about that.
func (l *ledger) workFor(now time.Time, f *file) (work, *share) {
	to, contested := l.goal(now, f)
	placed := filestate.Placed
	if contested {
		placed = filestate.PlacedContested
	}
	switch {
	case to == nil && !contested:
		l.handle(now, f, filestate.TooFewBytes)
	case to == nil || !l.concerns(to.domain, f.owner.domain):
		l.handle(now, f, placed)
	case to.domain == f.owner.domain:
		l.handle(now, f, placed)
		if f.needsDrop(now, to, contested) {
			return drop, to
		}
	case f.state.State() == filestate.Repairing && f.repair.isOver(now):
		l.fail(now, f, "the kernel did not move the file")
		l.gaveUp++
	case l.handle(now, f, filestate.Misplaced).Has(filestate.Move):
		return move, to
	}
	return nothing, nil
}

// needsDrop reports whether pages are to be dropped, of a file that its writer owns.
func (f *file) needsDrop(now time.Time, by *share, contested bool) bool {
	drifts := by.recent.drifts() && by.fresh.misplaced > 0 && !f.rest.lasts(now)
	if !contested && (drifts || f.drops.isDue(now)) {
		return true
	}
	if f.drops.leftovers == 0 && !drifts {
		f.drops.passes = 0
	}
	return false
}

// goal returns the writer that should own the file, or nil if there are too few bytes, or
// the file may stay with its owner. contested is true if it has several writers.
func (l *ledger) goal(now time.Time, f *file) (to *share, contested bool) {
	f.shares = slices.DeleteFunc(f.shares, func(s share) bool { return !l.limits.live(s.domain) })
	parties, total := f.parties(now)
	if total < worthwhile || len(parties) == 0 {
		return nil, false
	}
	to = parties[0]
	if len(parties) == 1 {
		return to, false
	}
	if l.strict {
		for _, p := range parties[1:] {
			if l.limits.stricter(p.domain, to.domain, f.fs) {
				to = p
			}
		}
		return to, true
	}
	takesPart := slices.ContainsFunc(parties, func(p *share) bool { return p.domain == f.owner.domain })
	if takesPart && to.recent.bytes < has*total {
		return nil, true
	}
	return to, true
}

// handle makes the transition of an event of a file, and takes its actions. It is the one
// place that changes the state of a file.
func (l *ledger) handle(now time.Time, f *file, e filestate.Event) filestate.Actions {
	do := f.state.Handle(e, f.rest.lasts(now))
	if e == filestate.Misplaced && f.repair.since.IsZero() {
		f.repair.since = now
	}
	if do.Has(filestate.BeginRepair) {
		f.repair.begin(now, f.owner.id)
	}
	if do.Has(filestate.EndRepair) && f.owner.id != f.repair.from {
		l.moved(now, f)
	} else if do.Has(filestate.Forget) {
		f.rest.settle(now)
	}
	if do.Has(filestate.Forget) {
		f.repair.since, f.repair.failure = time.Time{}, ""
	}
	if do.Has(filestate.Rest) {
		f.rest.begin(now)
	}
	return do
}

// moved notes that a file has been moved to its writer.
func (l *ledger) moved(now time.Time, f *file) {
	f.history.moves++
	l.arrivals = append(l.arrivals, arrival{f.Inode, f.owner.id, now.Sub(f.repair.since)})
	f.rest.begin(now)
	f.drops.follow(now)
}

// fail leaves a file alone for a time.
func (l *ledger) fail(now time.Time, f *file, why string) {
	l.handle(now, f, filestate.Failure)
	f.repair.failure, f.drops.passes = why, 0
}

// begin notes that a pass works on a file.
func (l *ledger) begin(now time.Time, t *task) {
	delete(l.touched, t.file)
	if t.work == move {
		l.handle(now, t.file, filestate.Began)
	}
	t.repair.passes++
}

// pause has nothing worked on: a policy says so.
func (l *ledger) pause(now time.Time) {
	for _, f := range l.files {
		l.handle(now, f, filestate.Paused)
	}
}
