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

// What a pass goes by.
const (
	// slice is what one vote writes out, or less: it is written early.
	slice, smallest = 64 << 10, 8 << 10
	// maxSlices of a file are looked at in one pass; longer ranges have longer ones.
	maxSlices = 128
	// look is after how many rounds the verdict is looked at.
	look = 8
	// moments are the rounds of what becomes dirty during a pass.
	moment, moments = time.Millisecond, 45
	// stay is how often it is looked whether to stay longer, and longestStay for how
	// long at most.
	stay, longestStay = 50 * time.Millisecond, 30 * time.Second
	// around is how much of a file is dropped before and after what was written:
	// who rewrites there goes on there.
	around = 32 << 20
	// lookAt is in how much of a file it is looked for what is dirty.
	lookAt, largestFolio = 1 << 30, 2 << 20
	// mostDropped of a file is dropped at a time: a few tenths of a second.
	mostDropped = 8 << 30
)

// visit is what a pass is to do with one file. It is made from a task, and shares
// nothing with the ledger.
type visit struct {
	writeback.Inode
	work    work
	ownerID uint64
	// first and last are where it was written to, lately.
	first, last int64
	drops       bool     // of that, much is charged to others
	writers     []string // their cgroups, if they may write through mappings
	fresh       uint64   // bytes that may be dirty
	dropAt      int64    // where to go on to drop, 0: from the beginning on
}

// outcome is what came of it.
type outcome struct {
	writeback.Inode
	owner   uint64
	path    string // on the host; "" if the kernel does not tell
	written uint64 // bytes that were written out early, or so
	dropAt  int64  // where a next visit is to go on to drop, 0: all was dropped
	err     error
}

// tools are what passes work with.
type tools struct {
	cache    pageCache
	procs    *mappings
	hostRoot string // where the host's root filesystem is
}

// worker passes over the files of one filesystem. A disk that does not answer
// blocks the worker, and nothing else.
type worker struct {
	tools
	budgets
	fs      *filesystem
	account account       // the pod whose budgets pay
	counted time.Duration // CPU time that was paid for
	// dirtied says that one of the files is written to; leave ends the stay.
	dirtied, leave <-chan struct{}
	alive          func() // it does not hang
}

// passed is what a pass took, and its outcomes.
type passed struct {
	fs       *filesystem
	account  account
	cpu      time.Duration
	outcomes []outcome
	skipped  []writeback.Inode // for want of CPU time
	err      error             // nothing could be done
}

// pass does what there is to do with a few files.
func (w *worker) pass(visits []visit) (out passed) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := writeback.ThreadTime()
	w.counted = before
	out.fs, out.account = w.fs, w.account
	defer func() {
		w.payCPU()
		out.cpu = w.counted - before
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
	w.moments(sessions)
	if w.stays(sessions) {
		for _, s := range sessions {
			s.again()
		}
		w.moments(sessions)
	}
	for _, s := range sessions {
		out.outcomes = append(out.outcomes, s.outcome)
	}
	return out
}

// payCPU pays for what the thread has had of a CPU since the last time.
func (w *worker) payCPU() {
	now := writeback.ThreadTime()
	w.cpu.spend(time.Now(), w.account, (now - w.counted).Seconds())
	w.counted = now
}

// moments makes rounds of what becomes dirty meanwhile, moment by moment: who writes
// and syncs leaves nothing dirty to be sliced.
func (w *worker) moments(sessions []*session) {
	for range moments {
		if !slices.ContainsFunc(sessions, func(s *session) bool { return s.goesOn }) {
			return
		}
		for _, s := range sessions {
			if s.goesOn {
				// Of who syncs little is dirty at any time, so little of this is early.
				s.round(s.from, s.length, min(slice, s.dirty/moments))
			}
		}
		time.Sleep(moment)
	}
}

// stays waits until one of the files is written to, as long as something of them is on
// its way to the disk: who waits for that has nothing dirty until then, and for a
// moment only. It reports whether it was. What has come of a file is not kept waiting.
func (w *worker) stays(sessions []*session) bool {
	select {
	case <-w.dirtied: // while there were rounds of that
	default:
	}
	idle := 0
	for until := time.Now().Add(longestStay); idle < 2 && time.Now().Before(until); w.alive() {
		if slices.ContainsFunc(sessions, func(s *session) bool { return !s.goesOn }) {
			return false
		}
		if idle++; slices.ContainsFunc(sessions, (*session).inFlight) {
			idle = 0
		}
		select {
		case <-w.dirtied:
			return true
		case <-w.leave:
			return false
		case <-time.After(stay):
		}
	}
	return false
}

// inFlight says that something is on its way to the disk.
func (s *session) inFlight() bool {
	cached, ok := s.cached()
	return ok && cached.Writeback > 0
}

// again is what begin does, for what is being written now: nearly all of the file is
// clean, so most of what others are charged with can be dropped.
func (s *session) again() {
	if cached, ok := s.cached(); ok {
		s.dirty = cached.Dirty
	}
	if s.goesOn && s.drops {
		s.writers = nil // mappings have been looked for
		s.fail(s.drop())
	}
}

// errOtherMount says that something else is mounted there now: numbers of files mean
// nothing in another filesystem.
var errOtherMount = errors.New("a different filesystem is mounted at this path")

// session is a visit under way.
type session struct {
	*visit
	*worker
	outcome
	file   openFile // nil: it could not be opened
	goesOn bool     // more rounds are of use
	rounds int
	// dirty bytes there may be as the visit begins, yet to be written out.
	dirty uint64
	// from and length are the part of the file that rounds are made over.
	from, length int64
}

func (s *session) close() {
	if s.file != nil {
		s.file.Close()
	}
}

// atMostDirty is how much can be dirty of what was written lately: of a writer that
// syncs, or goes over the same again and again, that is far less. Where that
// is not known it is no more than the range that was written to, whose last folio may be
// large.
func (s *session) atMostDirty() uint64 {
	if cached, ok := s.cached(); ok {
		return min(s.fresh, cached.Dirty)
	}
	return min(s.fresh, uint64(s.last-s.first)+largestFolio)
}

// cached is what is in the page cache where it was written to lately. ok is false where
// the kernel does not tell, or would have to look through too much.
func (s *session) cached() (_ writeback.Cached, ok bool) {
	if s.window() > lookAt {
		return writeback.Cached{}, false
	}
	return s.file.Cached(s.first, s.window())
}

// begin drops what is charged to others, and has what is dirty voted on.
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
	s.goesOn = v.work == move
	s.dirty = s.atMostDirty()
	if v.drops {
		// What is written from now on is charged to who writes, and votes so.
		s.fail(s.drop())
	} else {
		s.slice(owner)
	}
	return s
}

func (s *session) fail(err error) {
	if err != nil {
		s.err, s.goesOn = err, false
	}
}

// round has a part of the file written out, of which so much may be dirty.
func (s *session) round(at, length int64, dirty uint64) {
	if s.allowance() == 0 {
		s.goesOn = false
		return
	}
	if err := s.file.WriteOut(at, length); err != nil {
		s.fail(err)
		return
	}
	s.pay(dirty)
	if s.rounds++; s.rounds%look != 0 {
		return
	}
	now, err := s.file.Owner()
	s.fail(err)
	if err == nil && (now.Cgroup != s.ownerID || now.Decided()) {
		s.goesOn = false // to go on would write out what the cache would have merged
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

// slice has what is dirty written out in slices, until there have been enough
// rounds for the verdict.
func (s *session) slice(owner writeback.Owner) {
	size := sliceFor(s.visit, owner, s.dirty)
	for at := range s.slices(size) {
		if !s.goesOn {
			return
		}
		length, dirty := size, min(uint64(size), s.dirty-min(s.dirty, s.written))
		if size > slice && dirty > slice {
			// Beyond what is dirty the slices are clean.
			if length, dirty = s.affordable(at, size); length == 0 {
				s.goesOn = false
				return
			}
		}
		s.round(at, length, dirty)
		// Rounds over all of it would write out what is not allowed.
		s.goesOn = s.goesOn && length == size
	}
}

// slices are where slices of a size begin, the last of which has last in it.
func (v *visit) slices(size int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for at := v.first - v.first%size; yield(at) && at <= v.last-size; at += size {
		}
	}
}

// sliceFor is the size of slices, the largest of which what is dirty has as many as
// votes are missing.
func sliceFor(v *visit, owner writeback.Owner, dirty uint64) int64 {
	size := int64(slice)
	for ; size > smallest; size /= 2 {
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

// window is how long the part of the file is that is looked at, from first on.
func (v *visit) window() int64 { return v.last - v.first + around }
