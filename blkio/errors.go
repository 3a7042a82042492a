package blkio

import "errors"

// What a caller may have to decide on. They come wrapped; use errors.Is.
var (
	// ErrNotSupported means that the kernel, or the way it was booted, lacks
	// what was asked for.
	ErrNotSupported = errors.New("not supported")
	// ErrNoDevice means that a number names no whole disk: a partition, or a
	// device that is not there (any more).
	ErrNoDevice = errors.New("no such disk")
	// ErrGone means that the cgroup does not exist (any more).
	ErrGone = errors.New("cgroup was removed")
)
