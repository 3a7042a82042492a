// Command nri-blkio limits the block I/O of Kubernetes pods. This package has the flags, the signals, the
// wiring, and the printed texts.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(int(statusOf(err)))
}

// run is the program without the process around it. It has printed the error that it returns.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	a := newApp()
	a.stdin, a.stdout, a.stderr, a.getenv = stdin, stdout, stderr, os.Getenv
	return a.run(ctx, args)
}

func (a *app) run(ctx context.Context, args []string) error {
	cmd := a.rootCommand()
	cmd.SetArgs(a.preinstalled(args))
	cmd.SetIn(a.stdin)
	cmd.SetOut(a.stdout)
	cmd.SetErr(a.stderr)
	err := cmd.ExecuteContext(ctx)
	if err != nil && !isSilent(err) {
		terminal.Notes(a.stderr, "nri-blkio", terminal.ErrorLines(err)...)
	}
	return err
}
