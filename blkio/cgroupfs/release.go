package cgroupfs

import (
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseName is of a cgroup that lives for some microseconds.
const releaseName = "nri-blkio-release"

// ReleaseDeadOwners has the kernel give the files that cgroups without a
// directory own to the nearest cgroup above that has one: as far as nothing is
// left to write of them, so after a sync. Until then what is written to such a
// file is charged to the dead cgroup, and limited by what its io.max was.
//
// The kernel does so whenever some cgroup with the memory controller ends, and
// here one does: it is made below c and removed. c must have the memory controller
// enabled for those below it.
//
// Source: mm/backing-dev.c, wb_memcg_offline and cleanup_offline_cgwbs_workfn,
// since Linux 5.14.
func (c Cgroup) ReleaseDeadOwners() error {
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

// DropCache has the kernel forget the page cache that is charged to the cgroup and
// to those below it, removed ones too, as far as it is on its disk, and the inodes
// that nothing else keeps in memory. Who reads or writes these files next is
// charged for the pages, and owns the files. It may take as long as that takes, and
// is not to be done to who runs. ErrNotSupported before Linux 5.19.
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
