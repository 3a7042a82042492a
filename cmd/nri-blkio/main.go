// Command nri-blkio limits the block I/O of Kubernetes pods. This package has the flags, the signals, the
// wiring, and the printed texts.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/prometheus/common/version"
	"github.com/spf13/cobra"

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

const rootLong = `Block I/O limits for Kubernetes pods.

nri-blkio is an NRI plugin for containerd and CRI-O. Pods request limits in
annotations, and the plugin enforces them with io.max of cgroup v2, from the
container's first instruction.

    limits.blkio.noderesource.dev/container.db: "/var/lib/postgresql wbps=50Mi"
    limits.blkio.noderesource.dev/containers:   "rootfs wbps=10Mi"
    limits.blkio.noderesource.dev/pod-total:    "* wbps=100Mi"
    weight.blkio.noderesource.dev/container.db: "50"`

func (a *app) rootCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nri-blkio",
		Short: "Block I/O limits for Kubernetes pods",
		Long:  rootLong + exitHelp,
		Example: `  nri-blkio devices                 show the node's disks and what each can enforce
  nri-blkio check -f pod.yaml       show the limits that a pod would get on this node
  nri-blkio run                     run the node agent
  nri-blkio status                  show requested limits and limits in force
  nri-blkio top                     show what containers do on their disks, and how much they wait
  nri-blkio why prod/db-0           say what a pod waits for on its disks
  nri-blkio calibrate sdb           measure a disk, so that weights divide it as they should
  nri-blkio owner FILE              name the container whose limit applies to writes to a file`,
		SilenceErrors: true, // app.run prints them, in one line
		SilenceUsage:  true,
		Args:          knownCommand,
		Version:       versionText(),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		PersistentPreRunE: checkFlags,
	}
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	a.addNodeFlags(cmd)
	cmd.AddCommand(a.checkCommand(), a.versionCommand())
	cmd.AddCommand(a.nodeCommands()...)
	for _, c := range append(cmd.Commands(), cmd) {
		check := c.Args
		c.Args = func(cmd *cobra.Command, args []string) error { return usage(check(cmd, args)) }
	}
	return cmd
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  nri-blkio version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.stdout, versionText())
			return err
		},
	}
}

func versionText() string {
	return fmt.Sprintf("nri-blkio %s %s %s %s/%s", buildVersion(), version.GetRevision(), version.GoVersion, version.GoOS, version.GoArch)
}

// buildVersion returns the version that the linker has set, or that of the module in a plain
// `go install`.
func buildVersion() string {
	module := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Version
	}
	return cmp.Or(version.Version, module, "(devel)")
}

// exitStatus is the exit status of the process. 0 is success.
type exitStatus int

const (
	exitFindings     exitStatus = 1 // the command has an answer, and something is wrong
	exitUsage        exitStatus = 2 // the command line, or a file that it names, is wrong
	exitUndetermined exitStatus = 3 // something that the answer needs could not be read or done
)

// exitError is an error that has an exit status. All other errors have exitUndetermined.
type exitError struct {
	status exitStatus
	err    error // nil if the command's output explains the status
}

// Error is called only where err is not nil; see app.run.
func (e *exitError) Error() string {
	if e.err == nil {
		return "findings"
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// findings returns an error with exitFindings, for a command whose output lists the findings.
func findings() error { return &exitError{status: exitFindings} }

// usage returns err with exitUsage. It returns nil for nil.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUsage, err}
}

// named returns the error of reading a file that the command line names. If the file does not
// exist, the command line is wrong.
func named(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return usage(err)
	}
	return err
}

func statusOf(err error) exitStatus {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.status
	}
	return exitUndetermined
}

func isSilent(err error) bool {
	e, ok := errors.AsType[*exitError](err)
	return ok && e.err == nil
}

// checkFlags runs before each command. It finds missing flags and flags that exclude one another.
func checkFlags(cmd *cobra.Command, _ []string) error {
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return usage(err)
	}
	return usage(cmd.ValidateFlagGroups())
}

// exitHelp is part of the root command's help.
const exitHelp = `

Exit status:
  0  success
  1  findings: a manifest has errors, or a requested limit is not in force
  2  the command line is wrong, or a file that it names does not exist or is invalid
  3  undetermined: the command could not read or do all that it needs
If 1 and 3 apply, the status is 1.`

// knownCommand rejects an unknown command, and names a similar one.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := cmd.CommandPath() + " --help lists them"
	cmd.SuggestionsMinimumDistance = 2
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		hint = fmt.Sprintf("did you mean %q?", similar[0])
	}
	return fmt.Errorf("unknown command %q (%s)", args[0], hint)
}

// operands returns an error with a hint unless there are as many arguments.
func operands(least, most int, hint string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("%s: %d arguments (%s)", cmd.Name(), len(args), hint)
		}
		return nil
	}
}
