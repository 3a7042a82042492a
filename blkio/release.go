package blkio

import (
	"errors"
	"fmt"

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
// here one does: it is made and removed.
//
// Source: mm/backing-dev.c, wb_memcg_offline and cleanup_offline_cgwbs_workfn,
// since Linux 5.14.
func (h *Hierarchy) ReleaseDeadOwners() error {
	if err := unix.Mkdirat(h.fd, releaseName, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("release dead owners: make cgroup %s: %w", releaseName, err)
	}
	if err := unix.Unlinkat(h.fd, releaseName, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("release dead owners: remove cgroup %s: %w", releaseName, err)
	}
	return nil
}
