// Package storage finds the disks that paths of a node are stored on: mounts, filesystems,
// and the stacks of block devices in sysfs.
package storage
