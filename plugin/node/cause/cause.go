// Package cause names the causes of errors for events: a key, by which an event is recognized as a repeated one, and a text that a
// tenant may see.
package cause

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// ErrInternal is the only text that a tenant sees when the plugin rejects a container because of an internal
// failure (onError.internal: reject). It is the same on each retry and contains nothing about the host.
var ErrInternal = errors.New("nri-blkio: internal error; see the log of nri-blkio on this node")

// ErrNoAnswer is the error of a container whose resolution has been under way for too long.
var ErrNoAnswer = errors.New("one of its disks does not answer")

// ErrWriteHangs is the error of a group whose writer has been at work for too long.
var ErrWriteHangs = errors.New("a write to the pod's cgroups hangs in the kernel")

// Key identifies the cause of an error for programs: it stays the same while only amounts of other pods change.
type Key struct {
	request annotation.Identity // of an error in what is requested, otherwise zero
	failure string              // of another error: its kind and, for a failed write, what was written
}

// About returns the key of an event about the cause and other objects.
func (k Key) About(others ...string) podevent.Key {
	return podevent.KeyOf(append(others, k.failure, k.request.String())...)
}

// IsInternal reports whether the cause is not in what is requested, such as a disk that cannot be read.
func (k Key) IsInternal() bool {
	return k.failure != "" || k.request.Reason.Kind() == annotation.Internal
}

// Cause is the cause of an error.
type Cause struct {
	Key
	Text string // may be seen by a tenant
}

// KeyOf returns the key of the cause of an error.
func KeyOf(err error) Key {
	if invalid, ok := errors.AsType[*annotation.Error](err); ok {
		return Key{request: invalid.Identity}
	}
	return Of(err).Key
}

// Of returns the cause of an error. The text of other errors than these can have paths of the node, and with them names of other
// tenants: they have one cause.
func Of(err error) Cause {
	if invalid, ok := errors.AsType[*annotation.Error](err); ok {
		return Cause{Key{request: invalid.Identity}, invalid.Error()}
	}
	for _, known := range []struct {
		err  error
		kind string
	}{{ErrNoAnswer, "disk"}, {ErrWriteHangs, "hang"}, {bounded.ErrBusy, "busy"}} {
		if errors.Is(err, known.err) {
			return Cause{Key{failure: known.kind}, known.err.Error()}
		}
	}
	if failed, ok := errors.AsType[*cgroupfs.CgroupError](err); ok && failed.Data != "" {
		reason := reasonOf(failed.Err)
		key := Key{failure: fmt.Sprintf("write %q", []string{failed.Op, failed.Name, failed.Data, reason})}
		return Cause{key, fmt.Sprintf("%s %s %q: %s", failed.Op, failed.Name, failed.Data, reason)}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return Cause{Key{failure: "deadline"}, "a disk or a cgroup does not answer in time"}
	}
	return Cause{Key{failure: "internal"}, strings.TrimPrefix(ErrInternal.Error(), "nri-blkio: ")}
}

// reasonOf returns the reason of the system for a failed write, without the path.
func reasonOf(err error) string {
	for _, known := range []error{blkio.ErrGone, blkio.ErrNoDevice, blkio.ErrNotSupported} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	return err.Error()
}
