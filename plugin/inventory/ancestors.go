package inventory

import (
	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// AncestorStats are the I/O counters of the cgroups above containers, as one pass reads them.
// They count what the cgroups below did, and keep what removed ones did.
type AncestorStats struct {
	read  func(cgroup string) (map[blkio.Dev]blkio.Stat, error)
	known map[string]ancestor // by cgroup
}

type ancestor struct {
	stats map[blkio.Dev]blkio.Stat
	err   error
}

// NewAncestorStats returns the counters that read reads of a cgroup, each once.
func NewAncestorStats(read func(cgroup string) (map[blkio.Dev]blkio.Stat, error)) AncestorStats {
	return AncestorStats{read, map[string]ancestor{}}
}

// MayUseUndeclared reports whether a container may have used an undeclared disk, by what is
// above its cgroup, from the top: the first one is above all pods and often answers for all.
func (s AncestorStats) MayUseUndeclared(cgroup string, facts *policy.Container) bool {
	for i, r := range cgroup {
		if r == '/' && !s.of(cgroup[:i]).mayUseUndeclared(facts) {
			return false
		}
	}
	return true
}

func (s AncestorStats) of(cgroup string) ancestor {
	one, known := s.known[cgroup]
	if !known {
		one.stats, one.err = s.read(cgroup)
		s.known[cgroup] = one
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
