package repair

import (
	"cmp"
	"slices"
	"time"
)

// work is what a pass is to do to a file.
type work int

const (
	nothing work = iota
	move         // to its desired owner
	drop         // the pages that are charged to others: else the file would go to these
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
	slices.SortFunc(out, func(a, b task) int { return cmp.Compare(b.to.bytes, a.to.bytes) })
	return out
}

// decideOn is decide for one file.
func (l *ledger) decideOn(now time.Time, f *file) []task {
	w, to := l.settle(now, f)
	if w == nothing {
		delete(l.touched, f)
		return nil
	}
	return []task{{f, w, to}}
}

// begin notes that a file is worked on.
func (l *ledger) begin(now time.Time, t *task) {
	delete(l.touched, t.file)
	if t.work == move && t.state != StateRepairing {
		t.state, t.began, t.from, t.passes = StateRepairing, now, t.ownerID, 0
	}
	t.passes++
}

// pause has nothing worked on: a policy says so.
func (l *ledger) pause() {
	for _, f := range l.files {
		if f.state == StateRepairing {
			f.state, f.began = StateWaiting, time.Time{}
		}
	}
}

func (f *file) total() (sum float64) {
	for i := range f.shares {
		sum += f.shares[i].bytes
	}
	return sum
}

// settle says what is to be done to a file.
func (l *ledger) settle(now time.Time, f *file) (work, *share) {
	to, contested := l.goal(now, f)
	switch {
	case to == nil && !contested:
		if f.state == StateRepairing {
			f.state = StateWaiting // until more is written
		}
		return nothing, nil
	case to == nil || !l.concerns(to.domain, f.owner):
		f.arrived(l, now, contested)
		return nothing, nil
	case to.domain == f.owner:
		f.arrived(l, now, contested)
		drifts := to.misplaced > drifting*to.bytes && to.freshWrong > 0 && !now.Before(f.notBefore)
		if !contested && (drifts || f.leftovers > 0 && !now.Before(f.leftoversAt)) {
			return drop, to
		}
		if f.leftovers == 0 && !drifts {
			f.drops = 0
		}
		return nothing, nil
	}
	if f.since.IsZero() {
		f.since = now
	}
	switch {
	case f.state == StateRepairing && now.Sub(f.began) > patience && f.passes >= fewPasses:
		f.fail(now, "the kernel did not move the file")
		l.gaveUp++
	case f.state == StateRepairing:
		return move, to
	case f.state == StateFailed && now.Before(f.notBefore):
	default:
		f.state = StateWaiting
		if !now.Before(f.notBefore) {
			return move, to
		}
	}
	return nothing, nil
}

// concerns reports whether it matters which of two domains a file belongs to.
func (l *ledger) concerns(writer, owner domain) bool { return l.limited(writer) || l.limited(owner) }

// arrived notes that a file is where it is to be.
func (f *file) arrived(l *ledger, now time.Time, contested bool) {
	switch {
	case f.state == StateFailed && now.Before(f.notBefore):
		return // its pages cannot be dropped
	case !f.began.IsZero() && f.ownerID != f.from:
		f.moves++
		l.arrivals = append(l.arrivals, arrival{f.Inode, f.ownerID, now.Sub(f.since)})
		f.restFrom(now)
		if f.drops > 0 {
			f.leftovers, f.leftoversAt, f.drops = leftoverPasses, now.Add(leftoverEvery), 0
		}
	case now.After(f.notBefore.Add(f.rest)):
		f.rest = 0 // it has stayed for as long as it rested
	}
	f.since, f.began, f.failure, f.state = time.Time{}, time.Time{}, "", StateRight
	if contested {
		f.state = StateContested
	}
}

// fail leaves a file alone for a time.
func (f *file) fail(now time.Time, why string) {
	f.state, f.failure, f.began, f.drops = StateFailed, why, time.Time{}, 0
	f.restFrom(now)
}

func (f *file) restFrom(now time.Time) {
	f.rest = min(max(2*f.rest, firstRest), lastRest)
	f.notBefore = now.Add(f.rest)
}

// takeArrivals returns those since the last call.
func (l *ledger) takeArrivals() []arrival {
	out := l.arrivals
	l.arrivals = nil
	return out
}
