package blkio

import (
	"cmp"
	"context"
	"io/fs"
	"iter"
	"slices"
	"strings"
)

// Below finds the mount that holds rel, a path relative to the directory that
// hostPath leads to, if that mount is below this directory and not at or above
// it: whoever binds the directory recursively gets that mount with it. at is its
// mountpoint, relative to the directory.
//
// rel may be a tenant's text. It is compared with the mount table and nothing
// more: no symlink in it is followed, no file is looked at. Not ok is a rel that
// is not clean, is "." or has "..", and a hostPath that leads nowhere known.
// The rest is as with Resolve.
func (s *Storage) Below(ctx context.Context, hostPath, rel string) (at string, b Backing, ok bool) {
	return s.current.Load().below(ctx, hostPath, rel)
}

// Submounts goes through the mounts below the directory that hostPath leads to,
// without those that another mount hides: mountpoints relative to the directory,
// sorted by their bytes, and what is stored there. It ends early with ctx. The
// rest is as with Resolve.
func (s *Storage) Submounts(ctx context.Context, hostPath string) iter.Seq2[string, Backing] {
	return func(yield func(string, Backing) bool) {
		s.current.Load().submounts(ctx, hostPath, yield)
	}
}

// Device returns the whole disk of a raw block device, by its number. Nothing is
// remembered: devices come and go without a change of the mount table.
func (s *Storage) Device(dev Dev) Backing {
	var b Backing
	disk, err := s.sys.WholeDisk(dev)
	if err != nil {
		b.without(err)
		return b
	}
	b.Disks = []Disk{disk}
	return b
}

func (s *snapshot) below(ctx context.Context, hostPath, rel string) (at string, _ Backing, ok bool) {
	if !fs.ValidPath(rel) || rel == "." {
		return "", Backing{}, false
	}
	dir, points := s.pointsBelow(ctx, hostPath)
	if len(points) == 0 {
		return "", Backing{}, false
	}
	m := s.table.find(dir + "/" + rel)
	if m == nil || !isBelow(m.Mountpoint, dir) {
		return "", Backing{}, false
	}
	b, _ := s.mountBacking(ctx, m, 0)
	return m.Mountpoint[len(dir)+1:], *b, true
}

func (s *snapshot) submounts(ctx context.Context, hostPath string, yield func(string, Backing) bool) {
	dir, points := s.pointsBelow(ctx, hostPath)
	for _, p := range points {
		m := s.table.find(p)
		switch {
		case !isBelow(p, dir) || ctx.Err() != nil:
			return
		case m.Mountpoint != p: // hidden
			continue
		}
		b, _ := s.mountBacking(ctx, m, 0)
		if !yield(p[len(dir)+1:], *b) {
			return
		}
	}
}

// pointsBelow returns the directory that hostPath leads to, "" for the root,
// and what the method of the table does for it.
func (s *snapshot) pointsBelow(ctx context.Context, hostPath string) (dir string, points []string) {
	dir = s.locate(ctx, hostPath).path
	if dir == "" {
		return "", nil
	}
	dir = strings.TrimSuffix(dir, "/")
	return dir, s.table.pointsBelow(dir)
}

// pointsBelow returns a list that starts with the mountpoints below a clean
// directory, in order; those of hidden mounts too. It is nil if there are none.
// The root directory is "" here and in what follows.
func (t *MountTable) pointsBelow(dir string) []string {
	points := t.points()
	first, _ := slices.BinarySearchFunc(points, dir, compareToBelow)
	if first == len(points) || !isBelow(points[first], dir) {
		return nil
	}
	return points[first:]
}

// points returns the mountpoints in the order of their bytes: those below a
// directory are next to one another. Sorting takes about 1 ms, so a storage has
// it done where the table is read, before a handler wants it.
func (t *MountTable) points() []string {
	t.sorting.Do(func() {
		t.sorted = make([]string, 0, len(t.byPoint))
		for i := range t.mounts {
			if t.others[i] < 0 { // one of each stack
				t.sorted = append(t.sorted, t.mounts[i].Mountpoint)
			}
		}
		slices.Sort(t.sorted)
	})
	return t.sorted
}

// compareToBelow compares a mountpoint with what the paths below dir start with,
// dir + "/", without making that.
func compareToBelow(p, dir string) int {
	if len(p) <= len(dir) {
		return cmp.Or(strings.Compare(p, dir), -1)
	}
	if c := strings.Compare(p[:len(dir)], dir); c != 0 {
		return c
	}
	if p[len(dir)] < '/' || p[len(dir):] == "/" {
		return -1
	}
	return 1
}

// isBelow says whether a mountpoint is below a directory, and not the directory
// itself.
func isBelow(p, dir string) bool {
	return len(p) > len(dir)+1 && p[len(dir)] == '/' && p[:len(dir)] == dir
}
