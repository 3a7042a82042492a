// Package cgroupfs reads and writes cgroups: their I/O files, extended attributes, IDs,
// and the end of their last process.
package cgroupfs
