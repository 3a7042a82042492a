package cgroupfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"
)

// Attribute is an extended attribute with data about a cgroup.
type Attribute struct {
	Value []byte // valid only during the call of the function that gets it
	ID    uint64 // of the cgroup, see [Cgroup.ID]
	// OnParent is true if the attribute is stored on the parent's directory, see
	// [Cgroup.Above].
	OnParent bool
	Owner    int // UID that owns the directory with the attribute
}

// Walk calls fn for each cgroup below the root that has the extended attribute, or whose
// parent has it for the cgroup, see [Cgroup.Above]. Parents come before children, and
// siblings are sorted by name. Walk does not enter the cgroups of containers, which may
// have any number of children with any attributes. It skips cgroups that are removed
// meanwhile, and those with a path that is too long for the kernel. If fn returns an error,
// Walk stops and returns that error.
func (h *Hierarchy) Walk(xattr string, fn func(c Cgroup, a Attribute) error) error {
	w := attributeWalk{h: h, xattr: xattr, fn: fn, buf: make([]byte, xattrSize)}
	return h.walk(".", func(c Cgroup, dir int, st *unix.Stat_t) error {
		if isContainer(c.path) {
			return fs.SkipDir
		}
		err := w.visit(c, dir, st)
		if err == nil && isPod(c.path) {
			return fs.SkipDir // below are containers
		}
		return err
	})
}

type attributeWalk struct {
	h     *Hierarchy
	xattr string
	fn    func(Cgroup, Attribute) error
	buf   []byte
}

func (w *attributeWalk) visit(c Cgroup, dir int, st *unix.Stat_t) error {
	names, err := listXattrs(w.buf, w.xattr, func(buf []byte) (int, error) { return unix.Flistxattr(dir, buf) })
	if err != nil {
		return c.xattrError("list", w.xattr, err)
	}
	for _, name := range names {
		value, err := getxattr(w.buf, func(buf []byte) (int, error) { return unix.Fgetxattr(dir, name, buf) })
		if err != nil {
			return c.xattrError("read", name, err)
		}
		about, id, onParent := c, st.Ino, name != w.xattr
		if onParent {
			about, id = about.child(name[len(w.xattr)+1:]), entryID(dir, name[len(w.xattr)+1:])
		}
		if value == nil || id == 0 || about.path == "." {
			continue // it was removed meanwhile
		}
		if err := w.fn(about, Attribute{value, id, onParent, int(st.Uid)}); err != nil {
			return err
		}
	}
	return nil
}

// entryID returns the inode number of a directory's entry, 0 if it has none.
func entryID(dir int, name string) uint64 {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0
	}
	return st.Ino
}

// visitor is called with a cgroup, and a descriptor and the status of its directory.
type visitor func(c Cgroup, dir int, st *unix.Stat_t) error

func (h *Hierarchy) walk(p string, fn visitor) error {
	names, err := h.visit(p, fn)
	if err != nil {
		return err
	}
	for _, name := range names {
		child := name
		if p != "." {
			child = p + "/" + name
		}
		if err := h.walk(child, fn); err != nil {
			return err
		}
	}
	return nil
}

func (h *Hierarchy) visit(p string, fn visitor) ([]string, error) {
	dir, err := h.open(p, unix.O_RDONLY|unix.O_DIRECTORY)
	if vanished(err) || errors.Is(err, unix.ENAMETOOLONG) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("walk cgroups: open %s: %w", p, err)
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return nil, fmt.Errorf("walk cgroups: stat %s: %w", p, err)
	}
	switch err := fn(Cgroup{h: h, path: p}, dir, &st); {
	case errors.Is(err, fs.SkipDir):
		return nil, nil
	case err != nil:
		return nil, err
	}
	names, err := subdirectories(dir, &st)
	if err != nil && !vanished(err) {
		return nil, fmt.Errorf("walk cgroups: read %s: %w", p, err)
	}
	return names, nil
}

func subdirectories(dir int, st *unix.Stat_t) ([]string, error) {
	if st.Nlink == 2 {
		return nil, nil // "." and the parent's entry: a leaf, spare its 60 files
	}
	// By hand: package os makes an object of each of the 60 files of each cgroup.
	var names []string
	buf := make([]byte, 8192)
	for {
		n, err := ignoreEINTR(func() (int, error) { return unix.ReadDirent(dir, buf) })
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			slices.Sort(names)
			return names, nil
		}
		names = appendDirectories(names, dir, buf[:n])
	}
}

// appendDirectories adds the names of the directories among entries of dir, which have the format of
// getdents64(2). An entry has its inode and offset, 8 bytes each, then its length (2), its type (1), and the
// name with a 0 after it.
func appendDirectories(names []string, dir int, entries []byte) []string {
	const length, kind, text = 16, 18, 19
	for len(entries) > text {
		size := int(binary.NativeEndian.Uint16(entries[length:]))
		if size <= text || size > len(entries) {
			break
		}
		e := entries[:size]
		entries = entries[size:]
		if e[kind] != unix.DT_DIR && e[kind] != unix.DT_UNKNOWN {
			continue
		}
		name := unix.ByteSliceToString(e[text:])
		if name == "." || name == ".." || e[kind] == unix.DT_UNKNOWN && !isDirectory(dir, name) {
			continue
		}
		names = append(names, name)
	}
	return names
}

// isDirectory reports whether an entry without a type is a directory. Entries of cgroupfs have a type, those of
// some other filesystems do not.
func isDirectory(dir int, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}
