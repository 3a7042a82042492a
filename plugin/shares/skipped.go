package shares

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// SkippedError names the cgroups that a pass could not read. The weights of these, and of all below
// them, stay as they are.
type SkippedError struct{ Cgroups []Skipped }

// Skipped is a cgroup that could not be read.
type Skipped struct {
	Path string // below the cgroup root
	Err  error
}

// maxNamed is how many cgroups the text of a SkippedError names.
const maxNamed = 3

// Error returns a line with the first cgroups, and the number of the others.
func (e *SkippedError) Error() string {
	var texts []string
	for i, s := range e.Cgroups {
		if i == maxNamed {
			texts = append(texts, fmt.Sprintf("and %d more", len(e.Cgroups)-i))
			break
		}
		texts = append(texts, s.String())
	}
	return strings.Join(texts, "; ")
}

// String names the cgroup and the cause.
func (s Skipped) String() string {
	cause := s.Err.Error()
	if at, ok := errors.AsType[*cgroupfs.CgroupError](s.Err); ok {
		cause = at.Cause()
	}
	return fmt.Sprintf("skip cgroup %s: %s", s.Path, cause)
}

// Has reports whether a cgroup was skipped, by itself or with one above it.
func (s Skipped) Has(cgroup string) bool {
	return cgroup == s.Path || strings.HasPrefix(cgroup, s.Path+"/")
}

// SkippedIn returns the cgroups that a pass could not read, by its error.
func SkippedIn(err error) []Skipped {
	if skipped, ok := errors.AsType[*SkippedError](err); ok {
		return skipped.Cgroups
	}
	return nil
}
