// Command nri-blkio limits the block I/O of Kubernetes pods. This package has the flags, the signals, the
// wiring, and the printed texts.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
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
		c.Args = usageArgs(c.Args)
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
