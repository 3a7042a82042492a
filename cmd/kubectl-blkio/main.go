// Command kubectl-blkio is a plugin of kubectl. "kubectl blkio status -A" shows the problems of all nodes, and the other commands
// are those of nri-blkio on the node of a pod. It asks the API server by kubectl only, so that contexts and authentication are
// those of kubectl.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/common/version"
	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
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
	error  // nil if the output explains the status
}

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// run is the program without the process around it. It returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{kubectl: kubectl{stdin: stdin, stdout: stdout, stderr: stderr}}
	cmd := a.rootCommand()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	failed, ok := errors.AsType[*exitError](err)
	if !ok {
		failed = &exitError{exitUndetermined, err}
	}
	if failed.error != nil {
		terminal.Notes(stderr, "kubectl blkio", terminal.ErrorLines(err)...)
	}
	return failed.status
}

const rootLong = `Block I/O limits of pods, from a workstation.

"status -A" shows the problems of all nodes with one request: it reads the reports that the
cluster part of nri-blkio keeps. The other commands run nri-blkio on the node of a pod, or on
--node, by "kubectl exec" in the pods of the plugin, and calibrate in a pod of its own. The pod
comes first, and what follows it are flags of nri-blkio there.

The exit status is that of nri-blkio on the node, or of kubectl.`

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "kubectl blkio", Short: "Block I/O limits of pods", Long: rootLong, Version: cmp.Or(version.Version, "(devel)"),
		Example: `  kubectl blkio status -A             problems of all nodes
  kubectl blkio why db-0 -n prod      what a pod waits for on its disks
  kubectl blkio top --node worker-1   what the pods of a node do on its disks`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl blkio"},
		SilenceErrors: true, // run prints them, in one line
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("unknown command %q (kubectl blkio --help lists them)", args[0])
			}
			return cmd.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%w", err) })
	root.CompletionOptions.DisableDefaultCmd = true // kubectl completes its plugins in another way
	for _, c := range nodeCommands() {
		root.AddCommand(a.command(c))
	}
	return root
}

// kubectl is how the program asks the API server.
type kubectl struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	context, file  string // --context and --kubeconfig; "" for those of kubectl
}

// run runs kubectl. Its messages come from the API server or from a node, so nothing of them acts on the terminal. After a failure they
// say why, and the error has the exit status.
func (k *kubectl) run(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
	if k.context != "" {
		args = append([]string{"--context=" + k.context}, args...)
	}
	if k.file != "" {
		args = append([]string{"--kubeconfig=" + k.file}, args...)
	}
	cmd, messages := exec.CommandContext(ctx, "kubectl", args...), &terminal.Lines{To: k.stderr}
	cmd.WaitDelay = time.Second // for children that keep a pipe open
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, messages
	err := errors.Join(cmd.Run(), messages.Close())
	if failed, ok := errors.AsType[*exec.ExitError](err); ok && failed.ExitCode() > 0 {
		return &exitError{failed.ExitCode(), nil}
	}
	return err
}

func (k *kubectl) get(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // a plugin for authentication may ask its user
	defer cancel()
	var out bytes.Buffer
	err := k.run(ctx, nil, &out, append([]string{"get", "--request-timeout=30s"}, args...)...)
	if failed, ok := errors.AsType[*exitError](err); ok {
		failed.status = exitUndetermined
	}
	return out.Bytes(), err
}

func (k *kubectl) exec(ctx context.Context, namespace, pod string, stdin io.Reader, command ...string) error {
	args := []string{"exec", "--namespace=" + namespace, pod}
	if stdin != nil {
		args = append(args, "--stdin")
	}
	out := &terminal.Lines{To: k.stdout}
	err := k.run(ctx, stdin, out, append(append(args, "--"), command...)...)
	return errors.Join(err, out.Close())
}
