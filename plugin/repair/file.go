package repair

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/repair/filestate"
)

const (
	// A cgroup is a writer of a file from the first share of its recent bytes on, and its
	// majority writer from the second. Without a majority writer a file stays with an
	// owner that writes to it.
	writerShare   = 0.1
	majorityShare = 0.6
	// maxShares of a file are remembered.
	maxShares = 8
	// A file that was moved, or could not be, rests. The next rest is twice as long, up
	// to the longest.
	minRest, maxRest = time.Second, time.Minute
	// A repair is given up after maxRepairTime and minPasses: a writer that waits long
	// for a sync rarely has dirty pages that passes could write out.
	maxRepairTime, minPasses = 10 * time.Second, 20
	// leftoverPasses drop leftovers after a file has moved.
	leftoverPasses, leftoverEvery = 3, 500 * time.Millisecond
)

// State is the state of a file in reports.
type State string

// The states of a file.
const (
	StateRight     State = "right"     // its desired owner owns it, and it has one writer
	StateWaiting   State = "waiting"   // to be moved; the budget does not allow a pass yet, or the file rests
	StateRepairing State = "repairing" // passes move it
	StateContested State = "contested" // it has several writers, and its desired owner owns it
	StateFailed    State = "failed"    // it could not be moved; the plugin retries after a rest
)

// reported returns the state for reports.
func reported(s filestate.State) State {
	return [...]State{
		filestate.Right: StateRight, filestate.Contested: StateContested, filestate.Waiting: StateWaiting,
		filestate.Interrupted: StateWaiting, filestate.Repairing: StateRepairing, filestate.Failed: StateFailed,
	}[s]
}

// file is an entry of the ledger: a file that a cgroup writes to, where a limit depends on
// the owner.
type file struct {
	writeback.Inode
	fs      *filesystem
	path    string // "" if it is not known
	owner   member
	shares  []share
	state   filestate.File
	repair  attempt
	rest    rest
	drops   drops
	history history
}

// member is a cgroup, and its domain on the filesystem of a file.
type member struct {
	domain
	id uint64
}

// attempt is the repair of a misplaced file.
type attempt struct {
	since   time.Time // when another domain became the desired owner; zero if none is
	began   time.Time // when the passes of the latest repair began
	from    uint64    // cgroup ID of the owner at that time
	passes  int       // number of passes since then
	failure string    // of the latest repair, until the file has its desired owner
}

// begin notes that passes begin to move the file.
func (a *attempt) begin(now time.Time, from uint64) { a.began, a.from, a.passes = now, from, 0 }

// isOver reports whether a repair has had the time and the passes that it may take.
func (a *attempt) isOver(now time.Time) bool {
	return now.Sub(a.began) > maxRepairTime && a.passes >= minPasses
}

// rest is the time for which passes leave a file alone.
type rest struct {
	until time.Time
	took  time.Duration // the latest rest; the next one is twice as long
}

func (r *rest) begin(now time.Time) {
	r.took = min(max(2*r.took, minRest), maxRest)
	r.until = now.Add(r.took)
}

func (r *rest) lasts(now time.Time) bool { return now.Before(r.until) }

// ownerKept makes the next rest a short one, if the file has kept its owner for as long as it
// rested.
func (r *rest) ownerKept(now time.Time) {
	if now.After(r.until.Add(r.took)) {
		r.took = 0
	}
}

// drops counts the passes that drop pages which are charged to others.
type drops struct {
	passes int // one after another
	// leftovers are passes to come. They drop pages that were under writeback as the file
	// was moved: these are charged to others, and would take the file back.
	leftovers   int
	leftoversAt time.Time // the next one
	// offset is where the next pass continues, if the budget did not allow the last one
	// to write out all dirty pages; 0 otherwise.
	offset int64
}

// follow has passes drop the leftovers of a file that was moved, if passes have dropped
// pages before.
func (d *drops) follow(now time.Time) {
	if d.passes > 0 {
		d.leftovers, d.leftoversAt, d.passes = leftoverPasses, now.Add(leftoverEvery), 0
	}
}

func (d *drops) isDue(now time.Time) bool { return d.leftovers > 0 && !now.Before(d.leftoversAt) }

// history counts the events of a file since it is in the ledger.
type history struct {
	account   account // that has brought it into the ledger
	lastWrite time.Time
	misplaced uint64 // bytes that others were charged with
	moves     int
}

func (f *file) total() (sum float64) {
	for i := range f.shares {
		sum += f.shares[i].recent.bytes
	}
	return sum
}

// share returns the share of a domain. A new one may replace the smallest.
func (f *file) share(now time.Time, d domain) *share {
	least := 0
	for i := range f.shares {
		f.shares[i].recent.decay(now)
		if f.shares[i].domain == d {
			return &f.shares[i]
		}
		if f.shares[i].recent.bytes < f.shares[least].recent.bytes {
			least = i
		}
	}
	if len(f.shares) < maxShares {
		f.shares = append(f.shares, share{})
		least = len(f.shares) - 1
	}
	f.shares[least] = share{domain: d, recent: recent{at: now}}
	return &f.shares[least]
}

// writers returns the current writers of a file, the largest first.
func (f *file) writers(now time.Time) (out []*share, total float64) {
	for i := range f.shares {
		f.shares[i].recent.decay(now)
		total += f.shares[i].recent.bytes
	}
	for i := range f.shares {
		if s := &f.shares[i]; s.recent.bytes >= writerShare*total && s.recent.bytes > 0 {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b *share) int { return cmp.Compare(b.recent.bytes, a.recent.bytes) })
	return out, total
}

const (
	// halfLife is the time after which bytes count half. Bytes are those that become
	// dirty, since these reach the disk.
	halfLife = 3 * time.Second
	// misplacedShare is the share of a domain's bytes that are charged to other domains,
	// from which on passes drop these pages. From one half on, the kernel would move the
	// file to these domains.
	misplacedShare = 0.3
	// maxWriters of a share are remembered.
	maxWriters = 4
)

// sample counts the writes of one cgroup to one file since the last read.
type sample struct {
	inode         writeback.Inode
	fs            *filesystem
	writer, owner member
	charged       domain
	account       account // of the writer
	span
	bytes  uint64
	coming uint64 // bytes that a pass may find in addition, and that a later read counts
}

// isMisplaced reports whether the bytes are charged to another domain than their writer's.
func (s *sample) isMisplaced() bool { return s.charged != s.writer.domain }

// share counts the writes of the cgroups of one domain to a file.
type share struct {
	domain
	account account  // of the last writer
	writers []uint64 // cgroup IDs, the latest last
	recent  recent
	fresh   fresh
	ever    span
}

// add notes a sample.
func (s *share) add(now time.Time, from *sample) {
	s.recent.decay(now)
	s.account = from.account
	if len(s.writers) == 0 {
		s.ever = from.span
	}
	s.ever = s.ever.union(from.span)
	s.recent.add(from)
	s.fresh.add(from)
	if !slices.Contains(s.writers, from.writer.id) {
		s.writers = append(s.writers, from.writer.id)
		s.writers = s.writers[max(0, len(s.writers)-maxWriters):]
	}
}

// span is the part of a file that was written to: its lowest and highest offset, see
// writeback.Dirtied.
type span struct{ first, last uint64 }

// maxOffset leaves room for a window after it.
const maxOffset = math.MaxInt64 - 2*around

// offsets returns the span as offsets for system calls: first is at most last, and both
// are at most maxOffset.
func (s span) offsets() (first, last int64) {
	return int64(min(s.first, s.last, maxOffset)), int64(min(s.last, maxOffset))
}

func (s span) union(o span) span { return span{min(s.first, o.first), max(s.last, o.last)} }

// recent counts bytes. The older they are, the less they count.
type recent struct {
	bytes     float64
	misplaced float64 // of these, on pages that are charged to others
	at        time.Time
}

func (r *recent) add(from *sample) {
	r.bytes += float64(from.bytes)
	if from.isMisplaced() {
		r.misplaced += float64(from.bytes)
	}
}

func (r *recent) decay(now time.Time) {
	part := math.Exp2(-now.Sub(r.at).Seconds() / halfLife.Seconds())
	r.bytes, r.misplaced, r.at = r.bytes*part, r.misplaced*part, now
}

// isMisplaced reports whether so many bytes are charged to other domains that these may get
// the file.
func (r *recent) isMisplaced() bool { return r.misplaced > misplacedShare*r.bytes }

// fresh counts the bytes since the last pass over the file.
type fresh struct {
	span
	bytes     uint64
	misplaced uint64 // of these, on pages that are charged to others
}

func (f *fresh) add(from *sample) {
	if f.bytes == 0 {
		f.span = from.span
	}
	f.span = f.union(from.span)
	bytes := from.bytes + from.coming
	f.bytes += bytes
	if from.isMisplaced() {
		f.misplaced += bytes
	}
}

// isMisplaced reports whether so many bytes are charged to other domains that these may get
// the file.
func (f *fresh) isMisplaced() bool { return float64(f.misplaced) > misplacedShare*float64(f.bytes) }
