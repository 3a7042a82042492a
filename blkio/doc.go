// Package blkio has the values of block I/O control in cgroup v2, and the formats of the
// kernel's files: devices, rates, limits, weights, counters. It does no I/O and builds on
// every system. Package cgroupfs reads and writes cgroups, package storage finds disks.
package blkio
