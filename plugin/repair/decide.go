package repair

import (
	"cmp"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/repair/filestate"
)

// minBytes is the number of recent bytes that a decision about a file needs.
const minBytes = 4 << 10

// work is the work of a pass on a file.
type work int

const (
	nothing work = iota
	move         // to its desired owner
	drop         // drop pages that are charged to other domains: in the end they would take the file
)

// task is the work on one file.
type task struct {
	*file
	work work
	to   *share
}

// decide updates the state of each file that was written to. It returns the files that need
// work, those with most recent bytes first.
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

// workFor compares the owner of a file with its recent writers, and returns the work that
// follows from that.
func (l *ledger) workFor(now time.Time, f *file) (work, *share) {
	to, contested := l.desiredOwner(now, f)
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

// needsDrop reports whether the pages of a file that its writer owns have to be dropped.
func (f *file) needsDrop(now time.Time, by *share, contested bool) bool {
	misplaced := by.recent.isMisplaced() && by.fresh.misplaced > 0 && !f.rest.lasts(now)
	if !contested && (misplaced || f.drops.isDue(now)) {
		return true
	}
	if f.drops.leftovers == 0 && !misplaced {
		f.drops.passes = 0
	}
	return false
}

// desiredOwner returns the writer that should own the file, or nil if there are too few bytes, or
// the file may stay with its owner. contested is true if it has several writers.
func (l *ledger) desiredOwner(now time.Time, f *file) (to *share, contested bool) {
	f.shares = slices.DeleteFunc(f.shares, func(s share) bool { return !l.limits.live(s.domain) })
	writers, total := f.writers(now)
	if total < minBytes || len(writers) == 0 {
		return nil, false
	}
	to = writers[0]
	if len(writers) == 1 {
		return to, false
	}
	if l.strict {
		for _, p := range writers[1:] {
			if l.limits.stricter(p.domain, to.domain, f.fs) {
				to = p
			}
		}
		return to, true
	}
	ownerWrites := slices.ContainsFunc(writers, func(p *share) bool { return p.domain == f.owner.domain })
	if ownerWrites && to.recent.bytes < majorityShare*total {
		return nil, true
	}
	return to, true
}

// handle makes the transition of an event of a file, and takes its actions. No other code
// changes the state of a file.
func (l *ledger) handle(now time.Time, f *file, e filestate.Event) filestate.Actions {
	do := f.state.Handle(e, f.rest.lasts(now))
	if e == filestate.Misplaced && f.repair.since.IsZero() {
		f.repair.since = now
	}
	if do.Has(filestate.BeginRepair) {
		f.repair.begin(now, f.owner.id)
	}
	if do.Has(filestate.EndRepair) && f.owner.id != f.repair.from {
		l.noteMove(now, f)
	} else if do.Has(filestate.Forget) {
		f.rest.ownerKept(now)
	}
	if do.Has(filestate.Forget) {
		f.repair.since, f.repair.failure = time.Time{}, ""
	}
	if do.Has(filestate.Rest) {
		f.rest.begin(now)
	}
	return do
}

// noteMove counts a move of a file to its writer.
func (l *ledger) noteMove(now time.Time, f *file) {
	f.history.moves++
	l.movedFiles = append(l.movedFiles, movedFile{f.Inode, f.owner.id, now.Sub(f.repair.since)})
	f.rest.begin(now)
	f.drops.follow(now)
}

// fail records a failed repair, after which the file rests.
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

// pause ends all repairs, because the policy or the kernel does not allow them.
func (l *ledger) pause(now time.Time) {
	for _, f := range l.files {
		l.handle(now, f, filestate.Paused)
	}
}
