package inventory

import (
	"context"
	"iter"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Resolver finds the disks that a path of the node is stored on.
type Resolver interface {
	// Resolve returns the backing of a path, see storage.Storage.
	Resolve(ctx context.Context, hostPath string) *blkio.Backing
}

// Storage finds the disks of mounts and devices. It is a *storage.Storage, which documents
// the methods.
type Storage interface {
	Resolver
	// Refresh reads the mount table if it has changed.
	Refresh(ctx context.Context) error
	// Below returns the mount below hostPath that the path rel is on.
	Below(ctx context.Context, hostPath, rel string) (at string, b *blkio.Backing, ok bool)
	// Submounts returns all mounts below hostPath.
	Submounts(ctx context.Context, hostPath string) iter.Seq2[string, *blkio.Backing]
	// Device is Resolve for a block device by its number.
	Device(dev blkio.Dev) blkio.Backing
	// Physical returns the physical disks below a disk.
	Physical(disk blkio.Dev) ([]blkio.Disk, error)
	// Under returns the disks below a disk, at any depth.
	Under(ctx context.Context, disk blkio.Dev) []blkio.Disk
	// Links returns udev's links to a disk.
	Links(disk blkio.Dev) []string
}

// Disks finds out how the disks of the node are stacked and used. It is a *storage.Storage,
// which documents the methods.
type Disks interface {
	// Device is Resolve for a block device by its number.
	Device(dev blkio.Dev) blkio.Backing
	// Under returns the disks below a disk, at any depth.
	Under(ctx context.Context, disk blkio.Dev) []blkio.Disk
	// SwapDisks returns the disks that the kernel swaps to.
	SwapDisks(ctx context.Context) ([]blkio.Disk, error)
	// MountedDisks returns the disks of all mounted filesystems.
	MountedDisks() map[blkio.Dev]bool
}
