package cgroupfs

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// CgroupError is the failure of an operation on one cgroup. The path of the cgroup is a separate field, so that
// a caller can leave it out of a message. Each retry of a container's creation has another path.
type CgroupError struct {
	Op     string // "read", "write", "read xattr"
	Name   string // "io.max", or an extended attribute
	Data   string // the text that was written, "" for reads
	Cgroup string // path below the cgroup root
	Err    error
}

// Error formats `write io.max "8:16 wbps=1": invalid argument (cgroup a/b)`.
func (e *CgroupError) Error() string {
	return fmt.Sprintf("%s (cgroup %s)", e.Cause(), e.Cgroup)
}

// Cause returns the text of Error without the cgroup, which is the same on each retry.
func (e *CgroupError) Cause() string {
	if e.Data != "" {
		return fmt.Sprintf("%s %s %q: %v", e.Op, e.Name, e.Data, e.Err)
	}
	return fmt.Sprintf("%s %s: %v", e.Op, e.Name, e.Err)
}

// Unwrap returns the error of the system, which may be wrapped in one of package blkio.
func (e *CgroupError) Unwrap() error { return e.Err }

func (c Cgroup) fileError(op, name, data string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Without the io controller the directory has no io files.
		err = c.sentinel(blkio.ErrNotSupported, err)
	case errors.Is(err, unix.ENODEV):
		// kernfs answers so for a removed cgroup, blk-cgroup for a number
		// that is no whole disk.
		err = c.sentinel(blkio.ErrNoDevice, err)
	case errors.Is(err, unix.EOPNOTSUPP):
		err = &classified{blkio.ErrNotSupported, err}
	}
	return &CgroupError{Op: op, Name: name, Data: data, Cgroup: c.path, Err: err}
}

// sentinel wraps err in ErrGone, or in alive if the cgroup still exists.
func (c Cgroup) sentinel(alive, err error) error {
	if !c.Exists() {
		alive = blkio.ErrGone
	}
	return &classified{alive, err}
}

// classified is an error of the system that is also one of package blkio. Its text is made when it is asked for: a
// cgroup that does not exist yet is common.
type classified struct{ kind, err error }

func (e *classified) Error() string { return e.kind.Error() + ": " + e.err.Error() }

func (e *classified) Unwrap() error { return e.err }

func (e *classified) Is(target error) bool { return target == e.kind }
