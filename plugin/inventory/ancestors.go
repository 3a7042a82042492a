package inventory

import (
	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// AncestorStats caches the I/O counters of the ancestors of containers' cgroups for one
// pass. The counters of a cgroup include those of its descendants, removed ones included. It is safe for concurrent use.
type AncestorStats struct {
	read  func(cgroup string) (map[blkio.Dev]blkio.Stat, error)
	known cache[string, ancestor] // by cgroup
}

type ancestor struct {
	stats map[blkio.Dev]blkio.Stat
	err   error
}

// NewAncestorStats returns a cache that calls read once for each cgroup, and again only while it has no answer.
func NewAncestorStats(read func(cgroup string) (map[blkio.Dev]blkio.Stat, error)) *AncestorStats {
	return &AncestorStats{read: read}
}

// MayUseUndeclared reports whether a container may have used an undeclared disk, by the
// counters of its ancestors. It reads them from the top, because the counters of the
// ancestor of all pods often answer for all of them.
func (s *AncestorStats) MayUseUndeclared(cgroup string, facts *policy.Container) bool {
	for i, r := range cgroup {
		if r == '/' && !s.of(cgroup[:i]).mayUseUndeclared(facts) {
			return false
		}
	}
	return true
}

// IsClear reports whether MayUseUndeclared would return false by counters that were read before. It reads nothing.
func (s *AncestorStats) IsClear(cgroup string, facts *policy.Container) bool {
	for i, r := range cgroup {
		if r != '/' {
			continue
		}
		one, known := s.known.get(cgroup[:i])
		if !known {
			return false
		}
		if !one.mayUseUndeclared(facts) {
			return true
		}
	}
	return false
}

func (s *AncestorStats) of(cgroup string) ancestor {
	one, known := s.known.get(cgroup)
	if !known {
		one.stats, one.err = s.read(cgroup)
		s.known.put(cgroup, one)
	}
	return one
}

// mayUseUndeclared is also true where nothing is known: then the container's own counters
// decide.
func (a ancestor) mayUseUndeclared(facts *policy.Container) bool {
	if a.err != nil {
		return true
	}
	for dev, stat := range a.stats {
		if stat.Bytes() > 0 && !isDeclared(facts, dev) {
			return true
		}
	}
	return false
}
