package writeback

import (
	"fmt"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// itself is the result of a limited writer on its own file, without another writer: it
// pauses while it syncs, and the filesystem writes its own metadata.
type itself struct {
	rate  float64 // divided by its limit
	extra float64 // bytes on the disk in excess of the writer's, divided by the latter
}

// byItself measures the writer on its own file after a scenario in which a file was moved, once for each way to
// write.
func (s *stage) byItself(a actor, limit float64, args ...string) {
	s.Helper()
	if !*lab.Proof || s.moved.after == 0 {
		return
	}
	key := fmt.Sprint(limit, args)
	if s.shared.itself[key].rate == 0 {
		file := s.file("itself")
		a.makes(file, "16Mi")
		before := s.written(a.Cgroup)
		wrote := a.writes(file, args...)
		s.shared.itself[key] = itself{wrote.Rate() / limit, float64(s.written(a.Cgroup)-before)/float64(wrote.Bytes) - 1}
	}
	s.moved.itself = s.shared.itself[key].rate
	if s.extra != "" {
		s.extra += fmt.Sprintf(" (%.1f)", 100*s.shared.itself[key].extra)
	}
}
