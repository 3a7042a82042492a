package repair

import (
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// drop has the pages forgotten that are charged to others, where it was written to
// lately and around that. What is dirty there it has written out: of that, no more
// than is allowed. The next visit goes on behind it.
func (s *session) drop() error {
	from, end := max(0, s.first-around), s.first+s.window()
	if s.visit.dropAt > from && s.visit.dropAt <= s.last {
		from = s.visit.dropAt
	}
	length, dirty := s.affordable(from, end-from)
	if length == 0 {
		s.outcome.dropAt, s.goesOn = from, false
		return nil
	}
	s.outcome.dropAt = 0
	if from+length < end {
		// Rounds are made over this part only: they would write out the rest.
		s.outcome.dropAt, s.from, s.length = from+length, from, length
	}
	s.pay(dirty)
	if err := s.file.Drop(from, length); err != nil {
		return err
	}
	if len(s.writers) > 0 {
		s.procs.pageOut(s.account, s.visit.Inode, s.writers, from, from+length)
	}
	return nil
}

// affordable is how much of a part of the file may be written out, from its beginning
// on, and how much of that is dirty. It is 0 if not even a little of it may.
func (s *session) affordable(from, length int64) (_ int64, dirty uint64) {
	allowance := s.allowance()
	page := writeback.PageSize()
	for length = min(length, mostDropped); ; length = max(page, length/2/page*page) {
		dirty = s.dirtyIn(from, length)
		if dirty <= allowance {
			return length, dirty
		}
		if length <= smallest {
			return 0, 0
		}
	}
}

// dirtyIn is how much may be dirty in a part of the file.
func (s *session) dirtyIn(from, length int64) uint64 {
	if cached, ok := s.file.Cached(from, length); ok {
		return cached.Dirty
	}
	return min(s.fresh, uint64(length))
}

// allowance is how many bytes may be written out early.
func (s *session) allowance() uint64 { return uint64(s.early.allowance(time.Now(), s.account)) }

// pay pays for what was written out early.
func (s *session) pay(bytes uint64) {
	s.early.spend(time.Now(), s.account, float64(bytes))
	s.written += bytes
}
