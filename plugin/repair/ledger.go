package repair

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// What the ledger goes by. Bytes are those that become dirty, which is what reaches
// the disk; they count for less as they get older.
const (
	halfLife = 3 * time.Second
	// worthwhile is from how much on a file is looked at.
	worthwhile = 4 << 10
	// A party takes part in a file from this share of it on, and has it from that
	// one on. In between a file stays where it is.
	takesPart = 0.1
	has       = 0.6
	// drifting is the share of what a cgroup writes whose pages are charged to
	// others, from which on these are dropped: more than half would take the file.
	drifting = 0.3

	// maxFiles are in the ledger. An account may have all of them that no other
	// needs, see makeRoom.
	maxFiles  = 1 << 13
	maxShares = 8 // of a file
	// forgotten is how long a file stays in the ledger without writes.
	forgotten = 30 * time.Second
	// A file that was moved, or could not be, is left alone for a time, which
	// doubles with each time, up to the last.
	firstRest, lastRest = time.Second, time.Minute
	// patience is how long a file is tried, and fewPasses how often at least: of who
	// waits long for a sync there is seldom anything to try with.
	patience, fewPasses = 10 * time.Second, 20
	// leftoverPasses come after a file has moved.
	leftoverPasses, leftoverEvery = 3, 500 * time.Millisecond
)

// State is the state of a file's repair.
type State string

// The states of a file.
const (
	StateRight     State = "right"     // its writer owns it
	StateWaiting   State = "waiting"   // to be moved: its turn, or its time, is to come
	StateRepairing State = "repairing" // being moved
	StateContested State = "contested" // several write to it, and it is where it is to be
	StateFailed    State = "failed"    // it did not move, and is tried again later
)

// ledger counts the writers of each file, and decides which files to move. It does no
// I/O.
type ledger struct {
	files map[writeback.Inode]*file
	// limited says that there is a limit on a domain's writes; stricter that the
	// first has the smaller one.
	limited  func(domain) bool
	stricter func(a, b domain, fs *filesystem) bool
	strict   bool              // contested files go to who is limited most
	live     func(domain) bool // it can write, or have a limit, yet
	full     uint64            // bytes that were written to files that there was no room for
	gaveUp   int64             // files, for a time
	arrivals []arrival
	// touched are the files that were written to since they were decided on, and
	// brought those that each account has brought into the ledger.
	touched map[*file]bool
	brought map[account]map[*file]bool
	swept   time.Time
}

func newLedger(limited, live func(domain) bool, stricter func(a, b domain, fs *filesystem) bool) *ledger {
	return &ledger{
		files: map[writeback.Inode]*file{}, limited: limited, live: live, stricter: stricter,
		touched: map[*file]bool{}, brought: map[account]map[*file]bool{},
	}
}

// arrival is a file that was moved to its writer.
type arrival struct {
	writeback.Inode
	to   uint64        // number of a cgroup
	took time.Duration // since it belonged to another
}

// file is one file that is written to, where a limit concerns who writes or who
// owns it.
type file struct {
	writeback.Inode
	fs      *filesystem
	owner   domain
	ownerID uint64
	shares  []share
	state   State

	since     time.Time     // it belongs to another than it is to; zero: it does not
	began     time.Time     // it is worked on; zero: it was not yet
	from      uint64        // whose it was then
	passes    int           // since then
	notBefore time.Time     // it is worked on next
	rest      time.Duration // after that
	lastWrite time.Time
	wrong     uint64 // bytes since the beginning that others were charged with
	moves     int
	drops     int // passes, one after another, that were to change the charge of pages
	// leftovers are passes to come that drop what was on its way to the disk as the
	// file was moved: it is charged to others, and would take the file back.
	leftovers   int
	leftoversAt time.Time
	failure     string
	path        string // "" if it is not known
	broughtBy   account
	// dropAt is where the next pass goes on to drop pages, if the last one was not
	// allowed to write out all that is dirty there; else 0.
	dropAt int64
}

// share is what the cgroups of one domain write to a file.
type share struct {
	domain
	account     account  // of the last writer
	writers     []uint64 // numbers of cgroups, the last ones
	bytes       float64  // decaying
	misplaced   float64  // of these, on pages that are charged to others
	at          time.Time
	first, last uint64 // where, lately
	low, high   uint64 // where, ever
	fresh       uint64 // bytes since the last pass over the file
	freshWrong  uint64 // of these, as misplaced
}

// drifts says that of what was written since the last pass much is charged to others.
func (s *share) drifts() bool { return float64(s.freshWrong) > drifting*float64(s.fresh) }

// maxWriters of a share are remembered.
const maxWriters = 4

// sample is what a cgroup wrote since the last look.
type sample struct {
	inode                    writeback.Inode
	fs                       *filesystem
	writer, charged, owner   domain
	account                  account // of the writer
	writerID, ownerID, bytes uint64
	first, last              uint64
	coming                   uint64 // bytes that a pass may find beside, but that are not counted yet
}

// add notes a sample.
func (l *ledger) add(now time.Time, s *sample) {
	f := l.files[s.inode]
	if f == nil {
		if s.writer == s.owner && s.charged == s.writer || !l.concerns(s.writer, s.owner) {
			return // all is right, or no limit is concerned
		}
		if len(l.files) >= maxFiles && !l.makeRoom(s.account) {
			l.full += s.bytes
			return
		}
		f = &file{Inode: s.inode, state: StateRight}
		l.insert(f, s.account)
	}
	l.touched[f] = true
	f.fs, f.lastWrite = s.fs, now
	f.owner, f.ownerID = s.owner, s.ownerID
	if s.writer != s.owner && l.concerns(s.writer, s.owner) {
		f.wrong += s.bytes
	}
	f.share(now, s.writer).add(now, s)
}

// insert puts a file into the ledger, at the expense of an account.
func (l *ledger) insert(f *file, of account) {
	f.broughtBy = of
	l.files[f.Inode] = f
	if l.brought[of] == nil {
		l.brought[of] = map[*file]bool{}
	}
	l.brought[of][f] = true
}

// remove takes a file out of the ledger.
func (l *ledger) remove(f *file) {
	delete(l.files, f.Inode)
	delete(l.touched, f)
	of := l.brought[f.broughtBy]
	if delete(of, f); len(of) == 0 {
		delete(l.brought, f.broughtBy)
	}
}

// makeRoom forgets a file in favour of an account that has fewer files than its equal
// share of a full ledger. Then another one has more than that: the one with most
// loses a file, one of those that were not written to for longest.
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
	looked := 0
	for f := range most { // in any order
		if oldest == nil || f.lastWrite.Before(oldest.lastWrite) {
			oldest = f
		}
		if looked++; looked == evictLook {
			break
		}
	}
	if len(most) <= mine+1 || oldest == nil {
		return false
	}
	l.remove(oldest)
	return true
}

// evictLook is how many files the oldest of which makes room for another.
const evictLook = 8

// sweep forgets files without writers.
func (l *ledger) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Second {
		return
	}
	l.swept = now
	for _, f := range l.files {
		if now.Sub(f.lastWrite) > forgotten {
			l.remove(f)
		}
	}
}

// share finds a domain's, or begins it in place of the smallest.
func (f *file) share(now time.Time, d domain) *share {
	least := 0
	for i := range f.shares {
		f.shares[i].decay(now)
		if f.shares[i].domain == d {
			return &f.shares[i]
		}
		if f.shares[i].bytes < f.shares[least].bytes {
			least = i
		}
	}
	if len(f.shares) < maxShares {
		f.shares = append(f.shares, share{domain: d, at: now})
		return &f.shares[len(f.shares)-1]
	}
	f.shares[least] = share{domain: d, at: now}
	return &f.shares[least]
}

func (s *share) add(now time.Time, from *sample) {
	s.decay(now)
	s.account = from.account
	s.bytes += float64(from.bytes)
	if s.fresh == 0 {
		s.first, s.last = from.first, from.last
	}
	s.first, s.last = min(s.first, from.first), max(s.last, from.last)
	if len(s.writers) == 0 {
		s.low = from.first
	}
	s.low, s.high = min(s.low, from.first), max(s.high, from.last)
	s.fresh += from.bytes + from.coming
	if from.charged != from.writer {
		s.misplaced += float64(from.bytes)
		s.freshWrong += from.bytes + from.coming
	}
	if !slices.Contains(s.writers, from.writerID) {
		s.writers = append(s.writers, from.writerID)
		s.writers = s.writers[max(0, len(s.writers)-maxWriters):]
	}
}

func (s *share) decay(now time.Time) {
	part := math.Exp2(-now.Sub(s.at).Seconds() / halfLife.Seconds())
	s.bytes, s.misplaced, s.at = s.bytes*part, s.misplaced*part, now
}

// parties returns the current writers of a file, the largest first.
func (f *file) parties(now time.Time) (out []*share, total float64) {
	for i := range f.shares {
		f.shares[i].decay(now)
		total += f.shares[i].bytes
	}
	for i := range f.shares {
		if s := &f.shares[i]; s.bytes >= takesPart*total && s.bytes > 0 {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b *share) int { return cmp.Compare(b.bytes, a.bytes) })
	return out, total
}

// goal returns the writer that should own the file, or nil if there are too few bytes, or
// the file may stay with its owner. contested is true if it has several writers.
func (l *ledger) goal(now time.Time, f *file) (to *share, contested bool) {
	f.shares = slices.DeleteFunc(f.shares, func(s share) bool { return !l.live(s.domain) })
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
			if l.stricter(p.domain, to.domain, f.fs) {
				to = p
			}
		}
		return to, true
	}
	takesPart := slices.ContainsFunc(parties, func(p *share) bool { return p.domain == f.owner })
	if takesPart && to.bytes < has*total {
		return nil, true
	}
	return to, true
}
