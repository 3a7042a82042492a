package repair

import (
	"errors"
	"iter"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

const (
	// slice and minSlice bound the bytes that one vote writes out early.
	slice, minSlice = 64 << 10, 8 << 10
	// maxSlices of a file are written out in one pass; longer ranges have longer slices.
	maxSlices = 128
	// verdictEvery is the number of rounds after which the verdict is read.
	verdictEvery = 8
	// maxRounds write out pages that become dirty during a pass, one each roundEvery.
	roundEvery, maxRounds = time.Millisecond, 45
	// waitPoll is how often a pass checks whether to stay longer, up to longestWait.
	waitPoll, longestWait = 50 * time.Millisecond, 30 * time.Second
	// around is the length that is dropped before and after the writes: a writer that
	// rewrites a file continues there.
	around = 32 << 20
	// maxCounted is the longest part of a file whose dirty pages are counted.
	maxCounted, maxFolio = 1 << 30, 2 << 20
	// maxDropped of a file is dropped at a time, which takes a few tenths of a second.
	maxDropped = 8 << 30
)

// visit is the work of a pass on one file. It is made from a task, and shares nothing with
// the ledger.
type visit struct {
	writeback.Inode
	work    work
	ownerID uint64
	// first and last are the offsets of the recent writes.
	first, last int64
	drops       bool     // many of the pages there are charged to others
	writers     []string // their cgroups, if they may write through mappings
	fresh       uint64   // bytes that may be dirty
	dropAt      int64    // where dropping continues; 0 for the beginning
}

// outcome is the result of a visit.
type outcome struct {
	writeback.Inode
	owner   uint64
	path    string // on the host; "" if unknown
	written uint64 // bytes that were written out early, an estimate
	dropAt  int64  // where dropping continues in the next visit; 0 if all was dropped
	err     error
}

// tools has the parts that all passes share.
type tools struct {
	cache    pageCache
	procs    *mappings
	hostRoot string // where the host's root filesystem is
}

// worker passes over the files of one filesystem. A disk that does not answer blocks only the worker.
type worker struct {
	tools
	budgets
	fs      *filesystem
	account account       // the pod whose budgets pay
	cpuPaid time.Duration // CPU time that was paid for
	// dirtied receives a value when one of the files is written to. stop receives one when the pass has to
	// end.
	dirtied, stop <-chan struct{}
	reportAlive   func() // notes that the pass does not hang
}

// passed is the result of a pass.
type passed struct {
	fs       *filesystem
	account  account
	cpu      time.Duration
	outcomes []outcome
	skipped  []writeback.Inode // without CPU time in the budget
	err      error             // of the whole pass
}

func (w *worker) pass(visits []visit) (out passed) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := writeback.ThreadTime()
	w.cpuPaid = before
	out.fs, out.account = w.fs, w.account
	defer func() {
		w.payCPU()
		out.cpu = w.cpuPaid - before
	}()
	// The descriptor keeps the filesystem from being unmounted, as each file's does.
	root, err := w.cache.Open(hostPath(w.hostRoot, w.fs.mountpoint), w.fs.fstype)
	if err != nil {
		out.err = err
		return out
	}
	defer root.Close()
	var sessions []*session
	defer func() {
		for _, s := range sessions {
			s.close()
		}
	}()
	for i := range visits {
		if w.payCPU(); w.cpu.allowance(time.Now(), w.account) == 0 {
			out.skipped = append(out.skipped, visits[i].Inode)
			continue
		}
		sessions = append(sessions, w.begin(root, &visits[i]))
	}
	w.roundsWhileWriting(sessions)
	if w.awaitWrite(sessions) {
		for _, s := range sessions {
			s.resume()
		}
		w.roundsWhileWriting(sessions)
	}
	for _, s := range sessions {
		out.outcomes = append(out.outcomes, s.outcome)
	}
	return out
}

// payCPU pays for the CPU time of the thread since the last call.
func (w *worker) payCPU() {
	now := writeback.ThreadTime()
	w.cpu.spend(time.Now(), w.account, (now - w.cpuPaid).Seconds())
	w.cpuPaid = now
}

// roundsWhileWriting writes out newly dirtied pages every millisecond, each time as one
// round: a writer that syncs leaves no dirty pages for slices.
func (w *worker) roundsWhileWriting(sessions []*session) {
	for range maxRounds {
		if !slices.ContainsFunc(sessions, func(s *session) bool { return s.active }) {
			return
		}
		for _, s := range sessions {
			if s.active {
				// A writer that syncs has few dirty pages at any time, so few are written early.
				s.round(s.from, s.length, min(slice, s.dirty/maxRounds))
			}
		}
		time.Sleep(roundEvery)
	}
}

// awaitWrite waits until one of the files is written to, while some of their pages are under writeback. A
// writer that waits for a sync has no dirty pages until the sync ends, and only for a moment after it.
// awaitWrite reports whether a file was written to. It does not wait if a visit has its result.
func (w *worker) awaitWrite(sessions []*session) bool {
	select {
	case <-w.dirtied: // during the rounds, which have written it out
	default:
	}
	idle := 0
	for until := time.Now().Add(longestWait); idle < 2 && time.Now().Before(until); w.reportAlive() {
		if slices.ContainsFunc(sessions, func(s *session) bool { return !s.active }) {
			return false
		}
		if idle++; slices.ContainsFunc(sessions, (*session).inFlight) {
			idle = 0
		}
		select {
		case <-w.dirtied:
			return true
		case <-w.stop:
			return false
		case <-time.After(waitPoll):
		}
	}
	return false
}

// inFlight reports whether pages of the file are under writeback.
func (s *session) inFlight() bool {
	cached, ok := s.cached()
	return ok && cached.Writeback > 0
}

// resume prepares the session for the current writes, as begin does. Nearly all of the file is clean, so most
// pages that are charged to others can be dropped.
func (s *session) resume() {
	if cached, ok := s.cached(); ok {
		s.dirty = cached.Dirty
	}
	if s.active && s.drops {
		s.writers = nil // a search for mappings has been made
		s.fail(s.drop())
	}
}

// errOtherMount means that another filesystem is mounted there now, in which the inode
// numbers mean other files.
var errOtherMount = errors.New("a different filesystem is mounted at this path")

// session is a visit under way.
type session struct {
	*visit
	*worker
	outcome
	file   openFile // nil if it could not be opened
	active bool     // more rounds may move the file
	rounds int
	// dirty is how many bytes may be dirty as the visit begins.
	dirty uint64
	// from and length are the part of the file that rounds are made over.
	from, length int64
}

func (s *session) close() {
	if s.file != nil {
		s.file.Close()
	}
}

// atMostDirty returns how many of the recent bytes can be dirty. These are far fewer than
// were written if the writer syncs, or overwrites the same pages again and again. Where the
// kernel does not count them, they are at most the range that was written to, whose last
// folio may be large.
func (s *session) atMostDirty() uint64 {
	if cached, ok := s.cached(); ok {
		return min(s.fresh, cached.Dirty)
	}
	return min(s.fresh, uint64(s.last-s.first)+maxFolio)
}

// cached returns the cached pages in the part that was written to lately. ok is false
// where the kernel cannot count them, or the part is too long.
func (s *session) cached() (_ writeback.Cached, ok bool) {
	if s.window() > maxCounted {
		return writeback.Cached{}, false
	}
	return s.file.Cached(s.first, s.window())
}

// begin drops pages that are charged to others, and makes votes of dirty pages.
func (w *worker) begin(root mount, v *visit) *session {
	s := &session{visit: v, worker: w, outcome: outcome{Inode: v.Inode}, from: v.first, length: v.window()}
	if s.file, s.err = root.Open(v.Inode); s.err != nil {
		return s
	}
	owner, err := s.file.Owner()
	switch {
	case err != nil:
		s.err = err
		return s
	case owner.Dev != v.Dev:
		s.err = errOtherMount
		return s
	case owner.Generation != v.Generation:
		s.err = writeback.ErrNoFile
		return s
	}
	s.owner, s.path = owner.Cgroup, w.pathOf(s.file)
	if v.work == move && owner.Cgroup != v.ownerID {
		return s // it has moved: to be decided on anew
	}
	s.active = v.work == move
	s.dirty = s.atMostDirty()
	if v.drops {
		// Pages that are written from now on are charged to their writer, and vote for it.
		s.fail(s.drop())
	} else {
		s.slice(owner)
	}
	return s
}

func (s *session) fail(err error) {
	if err != nil {
		s.err, s.active = err, false
	}
}

// round writes out a part of the file. dirty is the number of bytes in it that may be dirty.
func (s *session) round(at, length int64, dirty uint64) {
	if s.allowance() == 0 {
		s.active = false
		return
	}
	if err := s.file.WriteOut(at, length); err != nil {
		s.fail(err)
		return
	}
	s.pay(dirty)
	if s.rounds++; s.rounds%verdictEvery != 0 {
		return
	}
	now, err := s.file.Owner()
	s.fail(err)
	if err == nil && (now.Cgroup != s.ownerID || now.Decided()) {
		s.active = false // more rounds would write out pages that the cache would merge
	}
}

// maxPath is how long a path is remembered for a file: a container chooses it.
const maxPath = 1 << 10

// pathOf is a file's path on the host, "" if the kernel does not know it.
func (w *worker) pathOf(f openFile) string {
	below, ok := f.Path()
	if !ok || len(below) > maxPath {
		return ""
	}
	return filepath.Join(w.fs.mountpoint, below)
}

// slice writes out the dirty pages in slices, until there are enough rounds for the
// verdict.
func (s *session) slice(owner writeback.Owner) {
	size := sliceFor(s.visit, owner, s.dirty)
	for at := range s.slices(size) {
		if !s.active {
			return
		}
		length, dirty := size, min(uint64(size), s.dirty-min(s.dirty, s.written))
		if size > slice && dirty > slice {
			// The slices after the dirty pages are clean.
			if length, dirty = s.affordable(at, size); length == 0 {
				s.active = false
				return
			}
		}
		s.round(at, length, dirty)
		// Rounds over all of the slice would write out more than the budget allows.
		s.active = s.active && length == size
	}
}

// slices returns the offsets at which slices of a size begin. The last slice contains last.
func (v *visit) slices(size int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for at := v.first - v.first%size; yield(at) && at <= v.last-size; at += size {
		}
	}
}

// sliceFor returns the size of slices: the largest at which the dirty bytes make as many
// slices as votes are missing.
func sliceFor(v *visit, owner writeback.Owner, dirty uint64) int64 {
	size := int64(slice)
	for ; size > minSlice; size /= 2 {
		round := writeback.RoundTime(uint64(size/writeback.PageSize()), owner.Bandwidth)
		if uint64(owner.Missing(round))*uint64(size) <= dirty {
			break
		}
	}
	for (v.last-v.first)/size >= maxSlices {
		size *= 2
	}
	return size
}

// window returns the length of the part of the file that a visit works on, from first on.
func (v *visit) window() int64 { return v.last - v.first + around }
