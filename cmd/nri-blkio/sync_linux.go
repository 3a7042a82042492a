package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/internal/terminal"
)

// syncCommand returns the command that run starts for each sync. A sync that hangs in the kernel
// then keeps a process of its own, and no thread of the plugin.
func (a *app) syncCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "sync DIRECTORY",
		Short:  "Sync a filesystem (used by run)",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE:   func(_ *cobra.Command, args []string) error { return hostfs.Sync(args[0]) },
	}
}

// sync syncs the filesystem of a path of the node, in another process. When ctx ends, it kills the
// process, and returns when the kernel has ended it. Callers run one sync of a filesystem at a time.
func (o *options) sync(ctx context.Context, hostPath string) error {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "sync", o.host(hostPath))
	cmd.Env = []string{} // without the runtime's socket of a pre-installed plugin
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
