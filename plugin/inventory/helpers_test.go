package inventory

import (
	"context"
	"iter"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
)

var (
	rootDisk = blkio.Disk{Dev: blkio.Dev{Major: 254}, Name: "vda"}
	dataDisk = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 16}, Name: "vdb"}
)

// disks is a Storage whose answers are given by path prefix.
type disks struct{ resolve func(string) blkio.Backing }

func (d disks) Refresh(context.Context) error { return nil }

func (d disks) Resolve(_ context.Context, path string) blkio.Backing { return d.resolve(path) }

func (d disks) Below(context.Context, string, string) (string, blkio.Backing, bool) {
	return "", blkio.Backing{}, false
}

func (d disks) Submounts(context.Context, string) iter.Seq2[string, blkio.Backing] {
	return func(func(string, blkio.Backing) bool) {}
}

func (disks) Links(blkio.Dev) []string { return nil }

func (disks) Physical(disk blkio.Dev) ([]blkio.Disk, error) { return []blkio.Disk{{Dev: disk}}, nil }

func (d disks) Device(dev blkio.Dev) blkio.Backing {
	return on(blkio.Disk{Dev: dev, Name: "raw"})
}

func (d disks) Under(context.Context, blkio.Dev) []blkio.Disk { return nil }

func (d disks) MountedDisks() map[blkio.Dev]bool { return nil }

func (d disks) SwapDisks(context.Context) ([]blkio.Disk, error) { return nil, nil }

func on(disk blkio.Disk) blkio.Backing {
	return blkio.Backing{FSType: "ext4", Disks: []blkio.Disk{disk}}
}

func twoDisks(path string) blkio.Backing {
	switch {
	case strings.HasPrefix(path, "/mnt/data"):
		return on(dataDisk)
	case strings.HasPrefix(path, "/mnt/mem"):
		return blkio.Backing{FSType: "tmpfs", Reason: "tmpfs is memory, not a disk"}
	}
	return on(rootDisk)
}

func bind(src, dst string, opts ...string) Mount {
	return Mount{Type: "bind", Source: src, Destination: dst, Options: opts}
}
