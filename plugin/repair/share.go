package repair

import (
	"math"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

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
