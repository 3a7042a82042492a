package repair

import (
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// drop removes pages that are charged to others from the page cache, in and around the part of the file with
// recent writes. It writes out the dirty pages there, as many as the budget allows. The next visit continues
// after that part.
func (s *session) drop() error {
	from, end := max(0, s.first-around), s.first+s.window()
	if s.visit.dropAt > from && s.visit.dropAt <= s.last {
		from = s.visit.dropAt
	}
	length, dirty := s.affordable(from, end-from)
	if length == 0 {
		s.outcome.dropAt, s.active = from, false
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

// affordable returns the length of a part of the file that the budget allows to write out,
// from an offset on, and the dirty bytes in it. The length is 0 if the budget is too small.
func (s *session) affordable(from, length int64) (_ int64, dirty uint64) {
	allowance := s.allowance()
	page := writeback.PageSize()
	for length = min(length, maxDropped); ; length = max(page, length/2/page*page) {
		dirty = s.dirtyIn(from, length)
		if dirty <= allowance {
			return length, dirty
		}
		if length <= minSlice {
			return 0, 0
		}
	}
}

// dirtyIn returns how many bytes may be dirty in a part of the file.
func (s *session) dirtyIn(from, length int64) uint64 {
	if cached, ok := s.file.Cached(from, length); ok {
		return cached.Dirty
	}
	return min(s.fresh, uint64(length))
}

func (s *session) allowance() uint64 { return uint64(s.early.allowance(time.Now(), s.account)) }

func (s *session) pay(bytes uint64) {
	s.early.spend(time.Now(), s.account, float64(bytes))
	s.written += bytes
}
