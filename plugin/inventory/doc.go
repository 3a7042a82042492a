// Package inventory finds the disks of containers: those of the writable layer, of the
// mounts, and of the devices. It makes no decisions about limits.
package inventory
