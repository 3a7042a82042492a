package storage

import (
	"context"
	"io/fs"
	"iter"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Below finds the mount that rel is on, a path relative to the directory hostPath. It
// considers only mounts below that directory, which a recursive bind mount of the directory
// includes. at is the mountpoint, relative to the directory.
//
// rel may be the text of a tenant. Below only compares it with the mount table. It follows
// no symlink in it, and opens no file. ok is false if there is no such mount, if rel is
// ".", is not clean or contains "..", and if hostPath cannot be resolved. See Resolve for
// the rest.
func (s *Storage) Below(ctx context.Context, hostPath, rel string) (at string, b *blkio.Backing, ok bool) {
	return s.current.Load().below(ctx, hostPath, rel)
}

// Submounts returns the mounts below the directory hostPath that no other mount hides:
// their mountpoints relative to the directory, sorted by their bytes, and their backings.
// The sequence ends early when ctx ends. See Resolve for the rest.
func (s *Storage) Submounts(ctx context.Context, hostPath string) iter.Seq2[string, *blkio.Backing] {
	now := s.current.Load()
	dir, mounts := now.mountsBelow(ctx, hostPath)
	if len(mounts) == 0 || !isBelow(mounts[0].Mountpoint, dir) {
		return func(func(string, *blkio.Backing) bool) {} // as for most directories
	}
	return func(yield func(string, *blkio.Backing) bool) { now.submounts(ctx, dir, mounts, yield) }
}

// Device returns the backing of a raw block device: the whole disk that its number belongs
// to. It reads sysfs at each call, because devices come and go without a change of the
// mount table.
func (s *Storage) Device(dev blkio.Dev) blkio.Backing {
	var b blkio.Backing
	disk, err := s.sys.WholeDisk(dev)
	if err != nil {
		setReason(&b, err)
		return b
	}
	b.Disks = []blkio.Disk{disk}
	return b
}

func (s *snapshot) below(ctx context.Context, hostPath, rel string) (at string, _ *blkio.Backing, ok bool) {
	if !fs.ValidPath(rel) || rel == "." {
		return "", nil, false
	}
	dir, mounts := s.mountsBelow(ctx, hostPath)
	if len(mounts) == 0 {
		return "", nil, false
	}
	m := s.table.find(dir + "/" + rel)
	if m == nil || !isBelow(m.Mountpoint, dir) {
		return "", nil, false
	}
	b, _ := s.mountBacking(ctx, m, 0)
	return m.Mountpoint[len(dir)+1:], b, true
}

func (s *snapshot) submounts(ctx context.Context, dir string, mounts []*Mount, yield func(string, *blkio.Backing) bool) {
	for _, m := range s.visibleOf(dir, mounts) {
		if ctx.Err() != nil {
			return
		}
		b, _ := s.mountBacking(ctx, m, 0)
		if !yield(m.Mountpoint[len(dir)+1:], b) {
			return
		}
	}
}

// visibleMounts has the visible mounts below directories. Each container that follows the mounts of a directory needs them
// after each change of the table.
type visibleMounts = boundedMap[string, []*Mount]

// maxVisible bounds the directories with visible mounts. Few are followed, mostly "/".
const maxVisible = 8

// visibleOf returns the mounts that no other one hides, of the list that mountsBelow has for a directory.
func (s *snapshot) visibleOf(dir string, mounts []*Mount) []*Mount {
	if len(mounts) == 0 {
		return nil
	}
	if known, ok := s.visible.get(dir); ok {
		return known
	}
	var out []*Mount
	for i, on := range mounts {
		p := on.Mountpoint
		if !isBelow(p, dir) {
			break
		}
		if i > 0 && mounts[i-1].Mountpoint == p {
			continue // one of each stack
		}
		if m := s.table.find(p); m.Mountpoint == p {
			out = append(out, m)
		}
	}
	s.visible.put(strings.Clone(dir), out, maxVisible)
	return out
}

// mountsBelow returns the directory that hostPath leads to, "" for the root, and the
// list that MountTable.below has for it.
func (s *snapshot) mountsBelow(ctx context.Context, hostPath string) (dir string, mounts []*Mount) {
	dir = s.locate(ctx, hostPath).path
	if dir == "" {
		return "", nil
	}
	dir = strings.TrimSuffix(dir, "/")
	return dir, s.table.below(dir)
}
