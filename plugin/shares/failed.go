package shares

import (
	"errors"
	"fmt"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// DiskError is an error of weights on one disk.
type DiskError struct {
	Dev blkio.Dev
	Err error // of a write to io.weight of one cgroup
}

// Error returns a text without the cgroup and its weight. A disk that hangs fails in all cgroups of
// the node, with other weights in each pass: one line is enough of that.
func (e *DiskError) Error() string {
	cause := e.Err
	if at, ok := errors.AsType[*cgroupfs.CgroupError](cause); ok {
		cause = at.Err
	}
	return fmt.Sprintf("set weights on %s: %v", e.Dev, cause)
}

// Unwrap returns Err.
func (e *DiskError) Unwrap() error { return e.Err }
