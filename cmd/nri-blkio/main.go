// Command nri-blkio limits the block I/O of Kubernetes pods. This package is
// flags, signals and wiring, and what is printed.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(int(statusOf(err)))
}

// run is the program without the process. What it returns was printed.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	return (&app{
		stdin: stdin, stdout: stdout, stderr: stderr, getenv: os.Getenv,
		openCgroups: cgroupfs.OpenHierarchy,
	}).run(ctx, args)
}

// app is what the commands share with the process around them.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	openCgroups    func(dir string) (*cgroupfs.Hierarchy, error)
	opts           options
}

func (a *app) run(ctx context.Context, args []string) error {
	if len(args) == 0 && a.getenv(pluginSocketEnv) != "" {
		args = []string{"run"} // the runtime started us from /opt/nri/plugins
		a.opts.preinstalled = true
	}
	cmd := a.rootCommand()
	cmd.SetArgs(args)
	cmd.SetIn(a.stdin)
	cmd.SetOut(a.stdout)
	cmd.SetErr(a.stderr)
	err := cmd.ExecuteContext(ctx)
	if err != nil && !isSilent(err) {
		notes(a.stderr, "nri-blkio", errorLines(err))
	}
	return err
}
