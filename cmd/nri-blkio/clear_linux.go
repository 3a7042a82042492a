package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/nri-blkio/nri-blkio/plugin/clear"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/plugin/report"
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
--resync, unless its policy keeps io.cost enabled (weights: on, or a reserve); one that
was killed counts as running for some seconds, and a line says so. --all
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !o.all && !cmd.Flag("pod").Changed {
				return usage(errors.New("clear: no pod (write --pod NAMESPACE/NAME or --all)"))
			}
			return a.clear(&o)
		},
	}
	o.pod.add(a, cmd, "the pod to clear")
	a.opts.addStateFlag(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "clear all pods of this node")
	f.BoolVar(&o.yes, "yes", false, "with --all: do not ask")
	f.BoolVar(&o.undo, "undo", false, "remove the marks, so that a running plugin restores the limits")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the changes without making them")
	cmd.MarkFlagsMutuallyExclusive("pod", "all")
	return cmd
}

func (a *app) clear(o *clearOptions) error {
	tree, err := a.cgroups()
	if err != nil {
		return err
	}
	defer tree.Close()
	clearing, err := clear.Find(tree, clear.Request{Pod: o.pod.Filter, Undo: o.undo, DryRun: o.dryRun})
	if err != nil {
		return err
	}
	if clearing.Pods() == 0 && !o.all {
		return usage(fmt.Errorf("pod %s has no limits of nri-blkio", o.pod))
	}
	if err := a.confirmClear(o, clearing.Pods()); err != nil {
		return err
	}
	node := clear.Node{Cgroups: tree, Disks: a.opts.disks(), StateDir: a.opts.host(a.opts.stateDir)}
	found, err := clearing.Run(node, &report.Clearing{Out: a.stdout, DryRun: o.dryRun})
	if err == nil && !found {
		fmt.Fprintln(a.stdout, "no limits of nri-blkio found")
	}
	return err
}

func (a *app) confirmClear(o *clearOptions, pods int) error {
	if !o.all || o.yes || o.undo || o.dryRun || pods == 0 {
		return nil
	}
	limits := "the limits of " + inspect.Count(pods, "pod")
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
