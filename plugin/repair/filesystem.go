package repair

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// filesystem is a watched filesystem.
type filesystem struct {
	dev        blkio.Dev // number in the kernel (super_block.s_dev)
	fstype     string
	mountpoint string      // path on the node
	disks      []blkio.Dev // its disks, and those below them
}

// Storage finds the filesystems of the node. It is a *storage.Storage, which documents the methods.
type Storage interface {
	Refresh(ctx context.Context) error
	Mounts() *storage.MountTable
	Resolve(ctx context.Context, hostPath string) *blkio.Backing
	Under(ctx context.Context, disk blkio.Dev) []blkio.Disk
}

// onLimited returns the filesystems on disks with a limit on writes: all that containers
// can write to, including those that are mounted later. A limit holds for the whole disk,
// so also for a logical volume on it.
func onLimited(ctx context.Context, s Storage, limited map[blkio.Dev]bool) (map[blkio.Dev]*filesystem, error) {
	out := map[blkio.Dev]*filesystem{}
	if len(limited) == 0 {
		return out, nil
	}
	if err := s.Refresh(ctx); err != nil {
		return nil, err
	}
	seen, under := map[blkio.Dev]bool{}, map[blkio.Dev][]blkio.Disk{}
	for _, m := range s.Mounts().All() {
		if !movable(m.FSType) || seen[m.Dev] && m.Root != "/" {
			continue
		}
		b := s.Resolve(ctx, m.Mountpoint)
		if b.Mountpoint != m.Mountpoint || b.FSType != m.FSType {
			continue // another one is mounted over it
		}
		seen[m.Dev] = true
		if b.Warning != nil && b.Warning.Kind == blkio.NoCgroupWriteback {
			continue
		}
		fs := &filesystem{dev: m.Dev, fstype: m.FSType, mountpoint: m.Mountpoint}
		for _, disk := range b.Disks {
			if _, known := under[disk.Dev]; !known {
				under[disk.Dev] = s.Under(ctx, disk.Dev)
			}
			for _, d := range append([]blkio.Disk{disk}, under[disk.Dev]...) {
				fs.disks = append(fs.disks, d.Dev)
			}
		}
		if slices.ContainsFunc(fs.disks, func(d blkio.Dev) bool { return limited[d] }) {
			out[m.Dev] = fs
		}
	}
	return out, ctx.Err()
}

// movable reports whether files of a filesystem type belong to cgroups, and
// writeback.Mount can open them by their inode numbers.
//
// Source: the users of SB_I_CGROUPWB in fs/.
func movable(fstype string) bool {
	switch fstype {
	case "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs":
		return true
	}
	return false
}

// hostPath returns the path by which this process reaches a path of the host.
func hostPath(hostRoot, p string) string { return filepath.Join(cmp.Or(hostRoot, "/"), p) }
