// Package blkio defines the values of block I/O control in cgroup v2: devices, rates,
// limits, weights and counters. It parses and formats the kernel's files that hold them. It
// does no I/O and builds on every system. Package cgroupfs reads and writes cgroups;
// package storage finds disks.
package blkio
