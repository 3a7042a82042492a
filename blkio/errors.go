package blkio

import "errors"

// The errors that callers decide on. They are wrapped; use errors.Is.
var (
	// ErrNotSupported means that the kernel, as it is built and booted, does not have the
	// feature.
	ErrNotSupported = errors.New("not supported")
	// ErrNoDevice means that a device number is not that of a whole disk: it belongs to a
	// partition, or there is no such device (any more).
	ErrNoDevice = errors.New("no such disk")
	// ErrGone means that the cgroup does not exist (any more).
	ErrGone = errors.New("cgroup was removed")
)
