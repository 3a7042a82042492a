package inventory

import (
	"context"
	"iter"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Resolver finds what a path of the host is stored on.
type Resolver interface {
	// Resolve never fails: what cannot be limited has a Reason.
	Resolve(ctx context.Context, hostPath string) blkio.Backing
}

// Storage finds the disks of mounts and devices; a *storage.Storage.
type Storage interface {
	Resolver
	// Refresh re-reads the mount table if the kernel says that it changed.
	Refresh(ctx context.Context) error
	// Below finds the mount below hostPath that holds rel, where there is one.
	Below(ctx context.Context, hostPath, rel string) (at string, b blkio.Backing, ok bool)
	// Submounts gives all mounts below hostPath.
	Submounts(ctx context.Context, hostPath string) iter.Seq2[string, blkio.Backing]
	// Device is Resolve for a block device by its number.
	Device(dev blkio.Dev) blkio.Backing
}

// Disks knows how the disks of the node are stacked and used; a *storage.Storage.
type Disks interface {
	// Device is Resolve for a block device by its number.
	Device(dev blkio.Dev) blkio.Backing
	// Under gives the disks that I/O to a disk is I/O to as well, down to the last.
	Under(ctx context.Context, disk blkio.Dev) []blkio.Disk
	// SwapDisks are those that the kernel swaps to.
	SwapDisks(ctx context.Context) ([]blkio.Disk, error)
	// MountedDisks are those that a mounted filesystem of the node is on.
	MountedDisks() map[blkio.Dev]bool
}
