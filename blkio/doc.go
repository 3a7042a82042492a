// Package blkio defines the values of block I/O control in cgroup v2: devices, rates,
// limits, weights and counters. It parses and formats the kernel's files that hold them. It
// does no I/O and builds on every system. Package cgroupfs reads and writes cgroups;
// package storage finds disks.
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

// Tri is the result of a probe. Its zero value is Unknown.
type Tri uint8

// The answers of a probe.
const (
	Unknown Tri = iota
	No
	Yes
)

// String returns "unknown", "no" or "yes".
func (t Tri) String() string { return [...]string{"unknown", "no", "yes"}[t] }

// MarshalText encodes the value as "yes", "no" or "unknown".
func (t Tri) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
