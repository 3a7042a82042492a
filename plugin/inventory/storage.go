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
	Refresh(ctx context.Context) error
	Below(ctx context.Context, hostPath, rel string) (at string, b *blkio.Backing, ok bool)
	Submounts(ctx context.Context, hostPath string) iter.Seq2[string, *blkio.Backing]
	Device(dev blkio.Dev) blkio.Backing
	Physical(disk blkio.Dev) ([]blkio.Disk, error)
	Under(ctx context.Context, disk blkio.Dev) []blkio.Disk
	Links(disk blkio.Dev) []string
}

// Disks finds out how the disks of the node are stacked and used. It is a *storage.Storage,
// which documents the methods.
type Disks interface {
	Device(dev blkio.Dev) blkio.Backing
	Under(ctx context.Context, disk blkio.Dev) []blkio.Disk
	SwapDisks(ctx context.Context) ([]blkio.Disk, error)
	MountedDisks() map[blkio.Dev]bool
}
