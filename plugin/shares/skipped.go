package shares

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// Skipped is a cgroup that could not be read. Its weights, and those of all below it, stay as they are.
type Skipped struct {
	Path string // below the cgroup root
	Err  error
}

// skippedError returns a line with the first cgroup, and the number of the others. It is nil for none.
func skippedError(all []Skipped) error {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return errors.New(all[0].String())
	}
	return fmt.Errorf("%s (and %d more)", all[0], len(all)-1)
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
