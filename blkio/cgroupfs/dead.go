package cgroupfs

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// This file reads the state of removed cgroups. A removed cgroup stays in the kernel, where
// no program can reach it, while pages are charged to it or it owns inodes.

// rootID is the inode number of the root of each kernfs, cgroup2 too.
const rootID = 1

// ID returns the cgroup ID, which is the inode number of its directory. A 64-bit kernel
// never uses an ID again (kernfs_ino in include/linux/kernfs.h).
func (c Cgroup) ID() (uint64, error) {
	st, err := c.stat()
	return st.Ino, err
}

// maxIDs is how many IDs IDs returns: a container may create any number of cgroups.
const maxIDs = 8

// IDs returns the IDs of the cgroup and of its first children, eight in all. crun puts the
// processes of a container into a child cgroup.
func (c Cgroup) IDs() ([]uint64, error) {
	st, err := c.stat()
	if err != nil {
		return nil, err
	}
	out := []uint64{st.Ino}
	if st.Nlink == 2 {
		return out, nil // none below
	}
	children, err := c.Children()
	for _, child := range children[:min(len(children), maxIDs-1)] {
		if id, err := child.ID(); err == nil {
			out = append(out, id)
		}
	}
	return out, err
}

// stat is by path for the reason of ReadXattr.
func (c Cgroup) stat() (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Lstat(c.h.dir+"/"+c.path, &st); err != nil {
		return st, c.fileError("stat", "directory", "", err)
	}
	return st, nil
}

// maxOwn is how many cgroups of one container's own IDs returns: it may make any number.
const maxOwn = 64

// IDs returns the paths of all cgroups by their IDs. The path of the root is ".". Of the
// cgroups below a container's, it returns the first 64. Cgroups of other cgroup namespaces
// are not visible, see Features.Namespaced.
func (h *Hierarchy) IDs() (map[uint64]string, error) {
	out := map[uint64]string{rootID: "."}
	container, own := "", 0
	err := h.walk(".", func(c Cgroup, _ int, st *unix.Stat_t) error {
		switch {
		case container != "" && strings.HasPrefix(c.path, container+"/"):
			if own++; own > maxOwn {
				return fs.SkipDir
			}
		case isContainer(c.path):
			container, own = c.path, 0
		}
		out[st.Ino] = c.path
		return nil
	})
	return out, err
}

// ReadUnwritten returns the bytes of dirty pages and of pages under writeback that are
// charged to the cgroup and its descendants, removed ones included. The kernel's count may
// be two seconds old. The error is ErrNotSupported without the memory controller.
//
// Source: Documentation/admin-guide/cgroup-v2.rst, "file_dirty", "file_writeback".
func (c Cgroup) ReadUnwritten() (uint64, error) {
	return readCgroup(c, "memory.stat", func(data string) (uint64, error) {
		return sumOf(data, "file_dirty", "file_writeback")
	})
}

// sumOf adds values of a flat keyed file. Each must be there.
func sumOf(data string, keys ...string) (uint64, error) {
	var sum uint64
	for _, key := range keys {
		_, rest, ok := strings.Cut("\n"+data, "\n"+key+" ")
		if !ok {
			return 0, errors.New("no " + key)
		}
		value, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", key, err)
		}
		sum += n
	}
	return sum, nil
}

// releaseName names a cgroup that exists for some microseconds.
const releaseName = "nri-blkio-release"

// ReleaseRemovedOwners makes the kernel hand the inodes of removed cgroups to their nearest
// living ancestors. Inodes with dirty pages stay, so the caller syncs their filesystem
// first. Until then writes to such a file are charged to the removed cgroup, and throttled
// by its last io.max.
//
// The kernel does this whenever a cgroup with the memory controller is removed.
// ReleaseRemovedOwners creates and removes a child of c. The memory controller must be enabled
// for the children of c.
//
// Source: mm/backing-dev.c, wb_memcg_offline and cleanup_offline_cgwbs_workfn, since Linux
// 5.14.
func (c Cgroup) ReleaseRemovedOwners() error {
	return c.withDir(func(fd int) error {
		if err := unix.Mkdirat(fd, releaseName, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return c.fileError("make", "cgroup "+releaseName, "", err)
		}
		if err := unix.Unlinkat(fd, releaseName, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
			return c.fileError("remove", "cgroup "+releaseName, "", err)
		}
		return nil
	})
}

// DropCache reclaims the clean page cache that is charged to the cgroup and its descendants, including removed
// ones. It also reclaims the inodes that only these pages keep in memory. The next reader or writer of the
// files is charged for their pages, and owns the files. The call may take long, and slows down running
// containers. The error is ErrNotSupported before Linux 5.19.
//
// Source: Documentation/admin-guide/cgroup-v2.rst, "memory.reclaim".
func (c Cgroup) DropCache() error {
	current, err := readCgroup(c, "memory.current", func(data string) (uint64, error) {
		return strconv.ParseUint(strings.TrimSpace(data), 10, 64)
	})
	if err != nil || current == 0 {
		return err
	}
	err = c.write("memory.reclaim", strconv.FormatUint(current, 10))
	if errors.Is(err, unix.EAGAIN) {
		return nil // not all of it is page cache
	}
	return err
}
