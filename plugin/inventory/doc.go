// Package inventory finds the disks of containers: those of the writable layer, of the mounts
// and of the devices. It makes no decision about limits.
package inventory
