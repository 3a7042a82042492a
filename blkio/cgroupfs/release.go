package cgroupfs

import (
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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
