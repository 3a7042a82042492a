package node

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
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// errNoAnswer is the error of a container whose resolution has been under way for too long.
var errNoAnswer = errors.New("one of its disks does not answer")

// errWriteHangs is the error of a group whose writer has been at work for too long.
var errWriteHangs = errors.New("a write to the pod's cgroups hangs in the kernel")

// causeKey identifies the cause of an error for programs: it stays the same while only amounts of other pods change.
type causeKey struct {
	request annotation.Identity // of an error in what is requested, otherwise zero
	failure string              // of another error: its kind and, for a failed write, what was written
}

// about returns the key of an event about the cause and other objects.
func (k causeKey) about(others ...string) podevent.Key {
	return podevent.KeyOf(append(others, k.failure, k.request.String())...)
}

// cause is the cause of an error.
type cause struct {
	causeKey
	text string // may be seen by a tenant
}

// keyOf returns the key of the cause of an error.
func keyOf(err error) causeKey {
	if invalid, ok := errors.AsType[*annotation.Error](err); ok {
		return causeKey{request: invalid.Identity}
	}
	return causeOf(err).causeKey
}

// causeOf returns the cause of an error. The text of other errors than these can have paths of the node, and with them names of other
// tenants: they have one cause.
func causeOf(err error) cause {
	if invalid, ok := errors.AsType[*annotation.Error](err); ok {
		return cause{causeKey{request: invalid.Identity}, invalid.Error()}
	}
	for _, known := range []struct {
		err  error
		kind string
	}{{errNoAnswer, "disk"}, {errWriteHangs, "hang"}, {bounded.ErrBusy, "busy"}} {
		if errors.Is(err, known.err) {
			return cause{causeKey{failure: known.kind}, known.err.Error()}
		}
	}
	if failed, ok := errors.AsType[*cgroupfs.CgroupError](err); ok && failed.Data != "" {
		reason := reasonOf(failed.Err)
		key := causeKey{failure: fmt.Sprintf("write %q", []string{failed.Op, failed.Name, failed.Data, reason})}
		return cause{key, fmt.Sprintf("%s %s %q: %s", failed.Op, failed.Name, failed.Data, reason)}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return cause{causeKey{failure: "deadline"}, "a disk or a cgroup does not answer in time"}
	}
	return cause{causeKey{failure: "internal"}, strings.TrimPrefix(ErrInternal.Error(), "nri-blkio: ")}
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

// partsOf returns the parts of an edit that an error rejects.
func partsOf(err error) podfacts.Parts {
	if r, ok := errors.AsType[*rejectedEdit](err); ok {
		return r.parts
	}
	return podfacts.Annotations
}
