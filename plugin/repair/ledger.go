package repair

import (
	"cmp"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/repair/filestate"
)

const (
	// maxFiles is the size of the ledger. An account may use all of it that no other
	// account needs, see makeRoom.
	maxFiles = 1 << 13
	// forgetAfter is how long a file stays in the ledger without writes.
	forgetAfter = 30 * time.Second
	// evictFrom is the number of files from which the oldest one makes room for another.
	evictFrom = 8
)

// limits has the limits on the writes of domains, see domains.
type limits interface {
	// limited reports whether the writes of a domain are limited.
	limited(domain) bool
	// live reports whether a domain's cgroups can write, or have a limit.
	live(domain) bool
	// stricter reports whether one domain may write less than another on a filesystem.
	stricter(a, b domain, fs *filesystem) bool
}

// ledger counts the writers of each file, and decides which files to move. It does no I/O.
type ledger struct {
	files      map[writeback.Inode]*file
	limits     limits
	strict     bool   // contested files go to the writer with the smallest limit
	full       uint64 // bytes that were written to files without room in the ledger
	gaveUp     int64  // repairs that took too long
	movedFiles []movedFile
	// touched are the files that were written to since the last decision about them.
	// brought are the files that count for each account.
	touched map[*file]bool
	brought map[account]map[*file]bool
	swept   time.Time
}

func newLedger(l limits) *ledger {
	return &ledger{
		files: map[writeback.Inode]*file{}, limits: l,
		touched: map[*file]bool{}, brought: map[account]map[*file]bool{},
	}
}

// movedFile is a file that was moved to its writer.
type movedFile struct {
	writeback.Inode
	to   uint64        // ID of a cgroup
	took time.Duration // since it was misplaced
}

// concerns reports whether a limit depends on which of two domains owns a file.
func (l *ledger) concerns(writer, owner domain) bool {
	return l.limits.limited(writer) || l.limits.limited(owner)
}

// add adds a sample to the counts of its file.
func (l *ledger) add(now time.Time, s *sample) {
	f := l.files[s.inode]
	if f == nil {
		if s.writer.domain == s.owner.domain && s.charged == s.writer.domain || !l.concerns(s.writer.domain, s.owner.domain) {
			return // its writer owns it, or no limit matters
		}
		if len(l.files) >= maxFiles && !l.makeRoom(s.account) {
			l.full += s.bytes
			return
		}
		f = &file{Inode: s.inode}
		l.insert(f, s.account)
	}
	l.touched[f] = true
	f.fs, f.owner, f.history.lastWrite = s.fs, s.owner, now
	if s.writer.domain != s.owner.domain && l.concerns(s.writer.domain, s.owner.domain) {
		f.history.misplaced += s.bytes
	}
	f.share(now, s.writer.domain).add(now, s)
}

func (l *ledger) insert(f *file, of account) {
	f.history.account = of
	l.files[f.Inode] = f
	if l.brought[of] == nil {
		l.brought[of] = map[*file]bool{}
	}
	l.brought[of][f] = true
}

func (l *ledger) remove(f *file) {
	delete(l.files, f.Inode)
	delete(l.touched, f)
	of := l.brought[f.history.account]
	if delete(of, f); len(of) == 0 {
		delete(l.brought, f.history.account)
	}
}

// makeRoom removes a file from a full ledger, for an account that has fewer files than its
// equal share. Then some other account has more than its share. The account with most files
// loses one that was not written to for a long time.
func (l *ledger) makeRoom(in account) bool {
	mine, accounts := len(l.brought[in]), len(l.brought)
	if mine == 0 {
		accounts++
	}
	if mine >= maxFiles/accounts {
		return false
	}
	var most map[*file]bool
	for _, of := range l.brought {
		if len(of) > len(most) {
			most = of
		}
	}
	var oldest *file
	compared := 0
	for f := range most { // in any order
		if oldest == nil || f.history.lastWrite.Before(oldest.history.lastWrite) {
			oldest = f
		}
		if compared++; compared == evictFrom {
			break
		}
	}
	if len(most) <= mine+1 || oldest == nil {
		return false
	}
	l.remove(oldest)
	return true
}

// sweep removes files that were not written to for a while.
func (l *ledger) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Second {
		return
	}
	l.swept = now
	for _, f := range l.files {
		if now.Sub(f.history.lastWrite) > forgetAfter {
			l.remove(f)
		}
	}
}

// takeMoved returns the files that were moved since the last call.
func (l *ledger) takeMoved() []movedFile {
	out := l.movedFiles
	l.movedFiles = nil
	return out
}

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
