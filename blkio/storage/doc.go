// Package storage finds the disks of the node that a path is stored on. It reads the mount
// table, and the stacks of block devices in sysfs.
package storage
