// Command kubectl-blkio is a plugin of kubectl. "kubectl blkio status -A" shows the problems of all nodes, and the other commands
// are those of nri-blkio on the node of a pod. It talks to the API server by kubectl only, so that contexts and authentication are
// those of kubectl.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/common/version"
	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(statusOf(err))
}

// The exit statuses, which are those of nri-blkio.
const (
	exitFindings     = 1
	exitUsage        = 2
	exitUndetermined = 3
)

// exitError is an error that has an exit status. All other errors have exitUndetermined.
type exitError struct {
	status int
	err    error // nil if the output explains the status
}

// Error is called only where err is not nil; see run.
func (e *exitError) Error() string { return e.err.Error() }

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func statusOf(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.status
	}
	return exitUndetermined
}

// run is the program without the process around it. It has printed the error that it returns.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	a := &app{kubectl: kubectl{stdin: stdin, stdout: stdout, stderr: stderr}}
	cmd := a.rootCommand()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if e, ok := errors.AsType[*exitError](err); err != nil && (!ok || e.err != nil) {
		terminal.Notes(stderr, "kubectl blkio", terminal.ErrorLines(err)...)
	}
	return err
}

const rootLong = `Block I/O limits of pods, from a workstation.

"status -A" shows the problems of all nodes with one request. It reads the reports that the
cluster part of nri-blkio keeps. The other commands run nri-blkio on the node of a pod, or of
--node, by "kubectl exec" in the pods of the plugin. Their flags are those of nri-blkio there:
POD comes first, and what follows it is passed on.

Exit status: that of nri-blkio on the node. 3 if kubectl fails.`

// app has what the commands share.
type app struct {
	kubectl
	namespace string // of the pod, "" for that of the context
	node      string // "" for that of the pod
	plugin    string // the namespace of the plugin
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "kubectl blkio", Short: "Block I/O limits of pods", Long: rootLong, Version: cmp.Or(version.Version, "(devel)"),
		Example: `  kubectl blkio status -A             problems of all nodes
  kubectl blkio why db-0 -n prod      what a pod waits for on its disks
  kubectl blkio top --node worker-1   what the pods of a node do on its disks`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl blkio"},
		SilenceErrors: true, // run prints them, in one line
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("unknown command %q (kubectl blkio --help lists them)", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%w", err) })
	root.CompletionOptions.DisableDefaultCmd = true // kubectl completes its plugins in another way
	for _, c := range nodeCommands() {
		root.AddCommand(a.command(c))
	}
	return root
}
