package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
)

const clearLong = `Remove the limits of nri-blkio from running containers and pods, without a restart.
The limits that "status" lists for them become max, and weights 100. Limits that
nri-blkio did not write stay.

The command marks the cgroups, and a running plugin does not change marked cgroups
until they are removed. A container that starts or restarts later gets its own limits
again. The limits of its pod (pod-total and the backstop) stay removed until the pod
is created anew. To remove the limits for good, create the pod again without the
annotations.

--all also disables io.cost where nri-blkio has enabled it, and removes the weights
of the cgroups above containers. A running plugin does both itself, within its
--resync, unless its policy keeps io.cost enabled (weights: on, or a reserve). --all
asks before it clears, and needs --yes if stdin is not a terminal.
--undo removes the marks, and a running plugin restores the limits within its
--resync (30 s by default).

The exit status is 2 if the pod has no limits of nri-blkio, or --all was not
confirmed; 3 if a limit may still be in force.

The command works without a running plugin. --undo then has no effect until the
plugin runs again.

The runtime can bring a limit back: it keeps the limits that a container was
created with, and writes them again with each update of its resources (an in-place
resize, the kubelet's CPU manager). Run clear again then.`

type clearOptions struct {
	pod          podFlag
	all, yes     bool
	undo, dryRun bool
}

func (a *app) clearCommand() *cobra.Command {
	var o clearOptions
	cmd := &cobra.Command{
		Use:   "clear --pod NAMESPACE/NAME | --all",
		Short: "Remove the limits of nri-blkio from running containers and pods",
		Long:  clearLong,
		Example: `  nri-blkio clear --pod prod/db-0 --dry-run
  nri-blkio clear --pod prod/db-0
  nri-blkio clear --pod prod/db-0 --undo
  nri-blkio clear --all --yes`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.clear(&o) },
	}
	o.pod.add(cmd, "the pod to clear")
	a.opts.addStateFlag(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "clear all pods of this node")
	f.BoolVar(&o.yes, "yes", false, "with --all: do not ask")
	f.BoolVar(&o.undo, "undo", false, "remove the marks, so that a running plugin restores the limits")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the changes without making them")
	cmd.MarkFlagsOneRequired("pod", "all")
	cmd.MarkFlagsMutuallyExclusive("pod", "all")
	return cmd
}

func (a *app) clear(o *clearOptions) error {
	tree, err := a.cgroups()
	if err != nil {
		return err
	}
	defer tree.Close()
	records, readErr := inspect.Records(tree, o.pod.Filter)
	if len(records) == 0 && readErr != nil {
		return readErr
	}
	if len(records) == 0 && !o.all {
		return usage(fmt.Errorf("pod %s has no limits of nri-blkio", &o.pod))
	}
	if !o.undo {
		records = append(records, inspect.PodsWithoutRecord(tree, records)...)
	}
	if err := a.confirmClear(o, records); err != nil {
		return err
	}
	clearer := enforce.Clearer{DryRun: o.dryRun}
	step := clearer.Clear
	if o.undo {
		step = clearer.Undo
	}
	out := clearing{out: a.stdout, dryRun: o.dryRun, brief: o.all && !o.dryRun}
	errs := []error{readErr}
	for _, r := range records {
		steps, err := step(r.Cgroup, r.Record)
		out.print(r.Record, steps)
		if err != nil && !errors.Is(err, blkio.ErrGone) {
			errs = append(errs, err)
		}
	}
	out.summary()
	steps := 0
	if o.all && !o.undo {
		var err error
		steps, err = a.clearWeights(tree, o.dryRun)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if len(records)+steps == 0 {
		fmt.Fprintln(a.stdout, "no limits of nri-blkio found")
	}
	return nil
}

// clearWeights removes io.cost settings and the weights above containers. It does nothing if a plugin runs,
// because that one removes them when it finds the marks. It returns the number of writes.
func (a *app) clearWeights(tree *cgroupfs.Hierarchy, dryRun bool) (int, error) {
	limits, err := inspect.ReadPart(a.opts.host(a.opts.stateDir), health.Limits)
	if err != nil || limits.Works() {
		return 0, err
	}
	steps, err := weights.Clear(tree, a.opts.disks(), dryRun)
	for _, step := range steps {
		if dryRun {
			step = "would " + step
		}
		fmt.Fprintln(a.stdout, terminal.EscapeLine(step))
	}
	return len(steps), err
}

// confirmClear asks before the limits of all pods are cleared.
func (a *app) confirmClear(o *clearOptions, records []inspect.Recorded) error {
	if !o.all || o.yes || o.undo || o.dryRun || len(records) == 0 {
		return nil
	}
	pods := map[[2]string]bool{}
	for _, r := range records {
		pods[[2]string{r.Record.Namespace, r.Record.Pod}] = true
	}
	limits := "the limits of " + inspect.Count(len(pods), "pod")
	if in, ok := a.stdin.(*os.File); !ok || !term.IsTerminal(int(in.Fd())) {
		return usage(fmt.Errorf("clear --all clears %s: add --yes to confirm", limits))
	}
	fmt.Fprintf(a.stderr, "Clear %s? [y/N] ", limits)
	answer, err := bufio.NewReader(a.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return usage(errors.New("nothing was cleared"))
	}
	return nil
}

// clearing prints the steps of clear.
type clearing struct {
	out    io.Writer
	dryRun bool
	brief  bool     // print one line for each pod
	done   []string // the pods of these lines
}

// print prints the steps for one cgroup. If brief is true, it keeps the pod for summary.
func (c *clearing) print(r *record.Record, steps []string) {
	if c.brief {
		if pod := podName(r.Namespace, r.Pod); len(steps) > 0 && !slices.Contains(c.done, pod) {
			c.done = append(c.done, pod)
		}
		return
	}
	subject, verb := terminal.Escape(containerName(r.Namespace, r.Pod, r.Container)), ""
	if c.dryRun {
		verb = "would "
	}
	for _, step := range steps {
		fmt.Fprintf(c.out, "%s: %s%s\n", subject, verb, terminal.EscapeLine(step))
	}
}

// summary prints the pods that have a changed cgroup, if brief is true.
func (c *clearing) summary() {
	for _, pod := range c.done {
		fmt.Fprintf(c.out, "%s: done\n", terminal.Escape(pod))
	}
}
