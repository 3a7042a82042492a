package blkio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Walk calls fn for every cgroup below the root that has the extended
// attribute, parents first and siblings by name. Cgroups that vanish meanwhile
// are left out, and those whose path is longer than the kernel takes: a container
// may make such. An error of fn ends the walk and is returned as it is, but for
// fs.SkipDir, which leaves out what is below.
func (h *Hierarchy) Walk(xattr string, fn func(c Cgroup, value []byte) error) error {
	return h.walk(".", func(c Cgroup, dir *os.File) error {
		value, err := getxattr(func(buf []byte) (int, error) { return unix.Fgetxattr(int(dir.Fd()), xattr, buf) })
		if err != nil {
			return c.xattrError("read", xattr, err)
		}
		if value == nil || c.path == "." {
			return nil
		}
		return fn(c, value)
	})
}

// walk calls fn for the cgroup at p and all below it, with its directory.
func (h *Hierarchy) walk(p string, fn func(c Cgroup, dir *os.File) error) error {
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

// visit calls fn for one cgroup and returns the names of its children.
func (h *Hierarchy) visit(p string, fn func(c Cgroup, dir *os.File) error) ([]string, error) {
	fd, err := h.open(p, unix.O_RDONLY|unix.O_DIRECTORY)
	if vanished(err) || errors.Is(err, unix.ENAMETOOLONG) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("walk cgroups: open %s: %w", p, err)
	}
	dir := os.NewFile(uintptr(fd), p)
	defer dir.Close()
	switch err := fn(Cgroup{h: h, path: p}, dir); {
	case errors.Is(err, fs.SkipDir):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return subdirectories(dir)
}

// subdirectories returns the sorted names of a cgroup's children.
func subdirectories(dir *os.File) ([]string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return nil, fmt.Errorf("walk cgroups: stat %s: %w", dir.Name(), err)
	}
	if st.Nlink == 2 {
		return nil, nil // "." and the parent's entry: a leaf, spare its 60 files
	}
	entries, err := dir.ReadDir(-1)
	if vanished(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("walk cgroups: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}
