package blkio

import (
	"errors"

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
