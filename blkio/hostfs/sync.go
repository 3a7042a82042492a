package hostfs

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Sync writes a filesystem to its disks. It returns nil if dir does not exist: the filesystem was
// unmounted meanwhile, which has written it.
func Sync(dir string) error {
	// A mountpoint has no symlink in its path, unless it was unmounted and a symlink
	// replaced a part of it.
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(fd)
	if err := unix.Syncfs(fd); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	// A commit of btrfs leaves the clean inode of its metadata on the list of dirty inodes of the cgroup that
	// owns it, which is the first one that changed metadata. The kernel releases no inode of that cgroup while
	// its list is not empty (cleanup_offline_cgwbs_workfn in mm/backing-dev.c). A second sync empties the list,
	// unless metadata is changed meanwhile. The data was written by the first one.
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err == nil && uint32(st.Type) == unix.BTRFS_SUPER_MAGIC {
		_ = unix.Syncfs(fd)
	}
	return nil
}
