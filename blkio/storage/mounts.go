package storage

import (
	"cmp"
	"context"
	"io"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Mount is one line of mountinfo. It has only the fields that this module uses.
type Mount struct {
	ID, Parent int
	Dev        blkio.Dev // st_dev of its files; the major number is 0 if that is no block device
	Root       string    // directory of the filesystem that is mounted; "" if its path is longer than PATH_MAX
	Mountpoint string    // absolute, without symlinks
	FSType     string
	Source     string
	// Options are those that name the layers of an overlay, or the realtime device of XFS. For other types it is "".
	Options string
	// Peers is the number of the mount's peer group. Master is the number of the peer group
	// from which it receives mounts and unmounts. 0 means none.
	Peers, Master int
	// DataJournal is true for ext4 with data=journal, which has no cgroup writeback.
	DataJournal bool
	// SlowFsync is true for ext4 with nodelalloc or dioread_lock. With these, an fsync of another writer waits
	// for a throttled one.
	SlowFsync bool
	// Unreadable is the reason why the other fields are incomplete, or "" if they are
	// complete. Paths that may be on such a mount cannot be limited. If the mountpoint
	// itself is too long, Mountpoint is the parent of its first PATH_MAX bytes. No
	// container can be given a path that is as deep.
	Unreadable string
}

// MountTable is a copy of the mount table of one mount namespace. It does not change, and
// is safe for concurrent use.
type MountTable struct {
	mounts []*Mount // in the order of the kernel
	// sorted has the same mounts by mountpoint. The mounts below a directory are
	// next to one another, and so are those on one mountpoint, in no order.
	sorted []*Mount
}

// ParseMountTable parses the text of mountinfo, see proc_pid_mountinfo(5):
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//
// The parent IDs show which mounts are hidden by others. A line that is malformed or too long affects only its
// own mount, see Mount.Unreadable. The error is the error of reading r.
func ParseMountTable(r io.Reader) (*MountTable, error) {
	c, err := newMountReader().read(r)
	return c.table, err
}

func newMountTable(mounts []*Mount) *MountTable {
	t := &MountTable{mounts: mounts, sorted: slices.Clone(mounts)}
	slices.SortStableFunc(t.sorted, byMountpoint)
	return t
}

func byMountpoint(a, b *Mount) int { return cmp.Compare(a.Mountpoint, b.Mountpoint) }

// next returns the table of these mounts. They are the mounts of t without those in gone and with those in
// added, in any order. This is faster than sorting all of them.
func (t *MountTable) next(mounts, added []*Mount, gone map[*Mount]bool) *MountTable {
	fresh := slices.SortedStableFunc(slices.Values(added), byMountpoint)
	out := &MountTable{mounts: mounts, sorted: make([]*Mount, 0, len(mounts))}
	for _, m := range t.sorted {
		if gone[m] {
			continue
		}
		for len(fresh) > 0 && fresh[0].Mountpoint < m.Mountpoint {
			out.sorted, fresh = append(out.sorted, fresh[0]), fresh[1:]
		}
		out.sorted = append(out.sorted, m)
	}
	out.sorted = append(out.sorted, fresh...)
	return out
}

// All returns all mounts, hidden ones included, in the order of the kernel. They must not
// be changed, and may be shared with another table.
func (t *MountTable) All() []*Mount { return t.mounts }

// ByID returns all mounts by their IDs.
func (t *MountTable) ByID() map[int]*Mount {
	out := make(map[int]*Mount, len(t.mounts))
	for _, m := range t.mounts {
		out[m.ID] = m
	}
	return out
}

// Find returns the mount that an absolute path is on. It does not resolve symlinks. Of the
// mounts on the longest mountpoint that covers the path, it returns the topmost. It leaves
// out mounts that others hide.
func (t *MountTable) Find(p string) (*Mount, bool) {
	if !strings.HasPrefix(p, "/") {
		return nil, false
	}
	m, _ := t.find(path.Clean(p))
	return m, m != nil
}

// find returns the mount of a clean path, and the nearest mount on the way to that which is not local, or nil. It searches for the
// mounts around each mountpoint in the path just once, so that the time grows only with the length of the path.
func (t *MountTable) find(p string) (m, remote *Mount) {
	for {
		// The mountpoints from a directory above p to p itself all start with that directory. So the last one
		// of them that is not after p is the nearest.
		i, _ := slices.BinarySearchFunc(t.sorted, p, func(m *Mount, p string) int {
			if m.Mountpoint <= p {
				return -1
			}
			return 1
		})
		if i == 0 {
			return nil, nil
		}
		last := t.sorted[i-1].Mountpoint
		if last == p {
			return t.top(t.stack(i), p)
		}
		p = commonDir(p, last)
	}
}

// stack returns the mounts on the mountpoint of the last mount before index end.
func (t *MountTable) stack(end int) []*Mount {
	first := end - 1
	for first > 0 && t.sorted[first-1].Mountpoint == t.sorted[end-1].Mountpoint {
		first--
	}
	return t.sorted[first:end]
}

// commonDir returns the deepest directory that is p or above it and whose text the
// path other starts with. Both are clean, and other is not an ancestor of p.
func commonDir(p, other string) string {
	n := 0
	for n < len(p) && n < len(other) && p[n] == other[n] {
		n++
	}
	if n < len(p) && p[n] == '/' {
		return p[:max(n, 1)]
	}
	return p[:max(strings.LastIndexByte(p[:n], '/'), 1)]
}

// top returns the visible mount on p, with the nearest one on the way to it that is not local. That is the top of the stack there, or
// the mount around it if a mount further up hides the whole stack.
func (t *MountTable) top(stack []*Mount, p string) (seen, remote *Mount) {
	var around *Mount
	if p != "/" {
		around, remote = t.find(parentDir(p))
	}
	if around == nil {
		seen = bottom(stack) // the root, whose parent is not in the table
	} else if seen = childOf(stack, around.ID); seen == nil {
		return around, remote
	} else if !isLocal(around) {
		remote = around
	}
	for range stack { // bounded, should the parents go round in circles
		next := childOf(stack, seen.ID)
		if next == nil {
			break
		}
		seen = next
	}
	return seen, remote
}

func bottom(stack []*Mount) *Mount {
	for _, m := range slices.Backward(stack) {
		isBelow := func(o *Mount) bool { return o.ID == m.Parent && o.ID != m.ID }
		if !slices.ContainsFunc(stack, isBelow) {
			return m
		}
	}
	return stack[len(stack)-1]
}

// childOf returns the mount of a stack that is mounted on the one with this ID.
func childOf(stack []*Mount, id int) *Mount {
	for _, m := range slices.Backward(stack) {
		if m.Parent == id && m.ID != id {
			return m
		}
	}
	return nil
}

// below returns a list that starts with the mounts below a clean directory, sorted
// by mountpoint; hidden ones too. It is nil if there are none. The root directory
// is "".
func (t *MountTable) below(dir string) []*Mount {
	first, _ := slices.BinarySearchFunc(t.sorted, dir, func(m *Mount, dir string) int { return compareToBelow(m.Mountpoint, dir) })
	if first == len(t.sorted) || !isBelow(t.sorted[first].Mountpoint, dir) {
		return nil
	}
	return t.sorted[first:]
}

// compareToBelow compares a mountpoint with the text that all paths below dir start
// with, dir + "/", without making that.
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

// isBelow reports whether a mountpoint is below a directory, and not the directory
// itself.
func isBelow(p, dir string) bool {
	return len(p) > len(dir)+1 && p[len(dir)] == '/' && p[:len(dir)] == dir
}

// parentDir is path.Dir for a clean absolute path, without its allocations.
func parentDir(p string) string {
	if i := strings.LastIndexByte(p, '/'); i > 0 {
		return p[:i]
	}
	return "/"
}

// Below finds the mount that rel is on, a path relative to the directory hostPath. It
// considers only mounts below that directory, which a recursive bind mount of the directory
// includes. at is the mountpoint, relative to the directory.
//
// rel may be the text of a tenant. Below only compares it with the mount table: it neither follows symlinks
// in it nor opens files. ok is false if the mount does not exist, if rel is ".", is not clean or contains "..",
// and if hostPath cannot be resolved. See Resolve for the rest.
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
	m, _ := s.table.find(dir + "/" + rel)
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
		if m, _ := s.table.find(p); m.Mountpoint == p {
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
