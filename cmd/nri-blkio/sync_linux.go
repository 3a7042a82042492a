package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
)

// syncCommand is what run starts for each sync: one that hangs in the kernel
// keeps this process, and no thread of the plugin.
func (a *app) syncCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "sync DIRECTORY",
		Short:  "Sync a filesystem (used by run)",
		Args:   usageArgs(cobra.ExactArgs(1)),
		Hidden: true,
		RunE:   func(_ *cobra.Command, args []string) error { return syncFilesystem(args[0]) },
	}
}

func syncFilesystem(dir string) error {
	// A mountpoint has no symlink in its path, unless it was unmounted and a symlink
	// replaced a part of it.
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // unmounted meanwhile, which has written it out
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(fd)
	if err := unix.Syncfs(fd); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	// A commit of btrfs leaves the inode of its metadata on the list of what is dirty, clean
	// as it is. Whose it is, the first that dirtied metadata, keeps all other files, too, as
	// long as there is anything on its list (Linux, cleanup_offline_cgwbs_workfn in
	// mm/backing-dev.c). A second sync takes it off, unless somebody goes on changing
	// metadata. What was to be written out is so without it.
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err == nil && uint32(st.Type) == unix.BTRFS_SUPER_MAGIC {
		_ = unix.Syncfs(fd)
	}
	return nil
}

// sync writes out the filesystem of a path of the node, in a process of its own.
// If that cannot be killed either, sync returns when the kernel lets it go: the
// caller has one at a time for a filesystem.
func (o *options) sync(ctx context.Context, hostPath string) error {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "sync", o.host(hostPath))
	cmd.Env = []string{} // not the runtime's socket of a pre-installed plugin
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return errors.New(terminal.EscapeLine(fmt.Sprintf("%s: %v", out, err)))
	}
	return nil
}
