package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/nri-blkio/nri-blkio/plugin/report"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
	"github.com/nri-blkio/nri-blkio/plugin/why"
)

const whyLong = `Measure for some seconds what a pod waits for on its disks, and say it in one line. Below
are the parts of that waiting time, with what to do about each, and the disks that the pod
uses.

CAUSE is one of
  own-limit, pod-limit   io.max of the container or of its pod: the text has the
                         annotation, class or rule that it is from
  other-limit            io.max of another cgroup
  share                  io.cost: its share of the disk by its weight is used up
  reserve                the same, and a cgroup outside of pods uses the disk most
  dirty-node             the node has as many dirty pages as it allows
  dirty-cgroup           the container has, for its memory limit
  journal                a commit of the filesystem
  other-owner            data of its files is queued for another container
  predecessor            data is queued for a container that has ended
  busy-disk              the disk itself, or its queue
  unattributed           I/O of which nothing tells where it was
  nothing-of-disk        no I/O
  unknown                no I/O that is seen, and commits of the filesystem cannot be
The line also says how much of the time it waits for a CPU or for memory, if that is much,
or if nothing is due to disks.

It works for any pod of the node, with limits or without, whether the plugin runs or not.
BPF programs count the waits while it measures, and are removed after that. They need root,
or CAP_BPF and CAP_PERFMON, and a kernel with BTF. Commits of a filesystem that is a kernel
module are only seen as root. What is not seen is listed as unknown. Without BPF the causes are guessed from rates, limits and pressure, and it says so.

Names of pods without limits are asked of the runtime.`

type whyOptions struct {
	duration time.Duration
	output   output
}

func (a *app) whyCommand() *cobra.Command {
	o := whyOptions{duration: 10 * time.Second}
	cmd := &cobra.Command{
		Use:   "why [NAMESPACE/]POD [CONTAINER]",
		Short: "Say what a pod waits for on its disks",
		Long:  whyLong,
		Example: `  nri-blkio why prod/db-0
  nri-blkio why db-0 postgres --for 30s
  nri-blkio why prod/db-0 -o json`,
		Args: operands(1, 2, "name a pod, and a container of it if you like"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.why(cmd.Context(), args, &o) },
	}
	cmd.Flags().DurationVar(&o.duration, "for", o.duration, "measure for this long")
	a.opts.addEndpointFlag(cmd, endpointForNames)
	o.output.add(cmd)
	cmd.ValidArgsFunction = a.completed(recordedTarget, a.running)
	return cmd
}

const endpointForNames = "the runtime's socket, asked for the names of pods; " + runtimeconfig.NoEndpoint + ": only pods with limits have names\n(default: that of containerd, CRI-O, k3s, RKE2 or k0s)"

// checkMeasuring rejects a time that is too short or too long to measure for.
func checkMeasuring(flag string, d time.Duration) error {
	const shortest, longest = time.Second, 10 * time.Minute
	if d < shortest || d > longest {
		return usage(fmt.Errorf("%s: %s is not between %s and %s", flag, d, shortest, longest))
	}
	return nil
}

func (a *app) why(ctx context.Context, args []string, o *whyOptions) error {
	if err := checkMeasuring("--for", o.duration); err != nil {
		return err
	}
	target := why.Target{Pod: args[0]}
	if namespace, pod, ok := strings.Cut(args[0], "/"); ok {
		target.Namespace, target.Pod = namespace, pod
	}
	if len(args) > 1 {
		target.Container = args[1]
	}
	h, err := a.host()
	if err != nil {
		return err
	}
	defer h.Close()
	a.opts.runtime.HostRoot = a.opts.hostRoot
	pods, podsErr := a.opts.runtime.Pods(ctx)
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt) // what was measured until then is shown
	defer stop()
	if f, ok := a.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprintf(f, "measuring for %s\n", o.duration)
	}
	node := why.Node{Cgroups: h.Cgroups, Pods: pods, Disk: h.DiskName, Btrfs: h.Sysfs.HasBtrfs, Proc: a.opts.host("/proc"), Attach: a.attach}
	m, err := why.Measure(ctx, node, target, o.duration)
	if err != nil {
		if podsErr != nil {
			err = fmt.Errorf("%w (the runtime does not name pods: %w)", err, podsErr)
		}
		return err
	}
	answer := why.Explain(m)
	if podsErr != nil {
		answer.Unknown = append(answer.Unknown, "names of pods without limits: "+podsErr.Error())
	}
	return a.print(o.output, answer, func(out *bytes.Buffer) { report.WriteWhy(out, &answer) })
}
