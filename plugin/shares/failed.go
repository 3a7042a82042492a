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

// Failed returns the first error of each disk in an error of [Keeper.Pass].
func Failed(err error) map[blkio.Dev]error {
	out := map[blkio.Dev]error{}
	eachError(err, func(e error) {
		if on, ok := errors.AsType[*DiskError](e); ok && out[on.Dev] == nil {
			out[on.Dev] = e
		}
	})
	return out
}

// joinDistinct is errors.Join without errors that have the text of an earlier one.
func joinDistinct(errs []error) error {
	seen := map[string]bool{}
	var out []error
	eachError(errors.Join(errs...), func(e error) {
		if text := e.Error(); !seen[text] {
			seen[text] = true
			out = append(out, e)
		}
	})
	return errors.Join(out...)
}

// eachError calls fn for each error that errors.Join has joined.
func eachError(err error, fn func(error)) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && err.Error() == errors.Join(joined.Unwrap()...).Error() {
		for _, e := range joined.Unwrap() {
			eachError(e, fn)
		}
		return
	}
	if err != nil {
		fn(err)
	}
}
