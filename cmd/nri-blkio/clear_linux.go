package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

const clearLong = `Remove the limits of nri-blkio from running containers and pods, without a restart.
The limits that "status" lists for them become max, and weights 100. Limits that
nri-blkio did not write stay.

The command marks the cgroups, and a running plugin does not change marked cgroups
until they are removed. A container that starts or restarts later gets its own limits
again. The limits of its pod (pod-total and the backstop) stay removed until the pod
is created anew. To remove the limits for good, create the pod again without the
annotations.

--all asks before it clears, and needs --yes if stdin is not a terminal.
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
		Args: usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return a.clear(&o) },
	}
	o.pod.add(cmd, "the pod to clear")
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
	tree, err := a.openCgroups(a.opts.cgroupDir())
	if err != nil {
		return err
	}
	defer tree.Close()
	records, readErr := inspect.Records(tree, o.pod.Filter)
	if len(records) == 0 && readErr != nil {
		return readErr
	}
	if len(records) == 0 {
		return a.nothingToClear(o)
	}
	if !o.undo {
		records = append(records, unrecordedPods(tree, records)...)
	}
	if err := a.confirmClear(o, records); err != nil {
		return err
	}
	c := clearer{out: a.stdout, dryRun: o.dryRun, brief: o.all && !o.dryRun}
	errs := []error{readErr}
	for _, r := range records {
		step := c.clear
		if o.undo {
			step = c.undo
		}
		if err := step(r); err != nil && !errors.Is(err, blkio.ErrGone) {
			errs = append(errs, err)
		}
	}
	c.summary()
	return errors.Join(errs...)
}

// nothingToClear is an error for a pod that the user has named.
func (a *app) nothingToClear(o *clearOptions) error {
	if !o.all {
		return usage(fmt.Errorf("pod %s has no limits of nri-blkio", &o.pod))
	}
	fmt.Fprintln(a.stdout, "no limits of nri-blkio found")
	return nil
}

// confirmClear asks before the limits of all pods are cleared.
func (a *app) confirmClear(o *clearOptions, records []inspect.Recorded) error {
	if !o.all || o.yes || o.undo || o.dryRun {
		return nil
	}
	pods := map[[2]string]bool{}
	for _, r := range records {
		pods[[2]string{r.Record.Namespace, r.Record.Pod}] = true
	}
	what := "the limits of " + count(len(pods), "pod", "pods")
	if in, ok := a.stdin.(*os.File); !ok || !term.IsTerminal(int(in.Fd())) {
		return usage(fmt.Errorf("clear --all clears %s: add --yes to confirm", what))
	}
	fmt.Fprintf(a.stderr, "Clear %s? [y/N] ", what)
	answer, err := bufio.NewReader(a.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return usage(errors.New("nothing was cleared"))
	}
	return nil
}

// unrecordedPods are the pods of containers whose own cgroup has no record: there
// is nothing to lift there, but a backstop could come, with the last unlimited
// container gone. They are marked, too.
func unrecordedPods(tree *cgroupfs.Hierarchy, records []inspect.Recorded) []inspect.Recorded {
	seen := map[string]bool{}
	for _, r := range records {
		seen[r.Cgroup.Path()] = true
	}
	var out []inspect.Recorded
	for _, r := range records {
		parent := path.Dir(r.Cgroup.Path())
		if r.Record.Kind != record.KindContainer || seen[parent] {
			continue
		}
		seen[parent] = true
		out = append(out, inspect.Recorded{Cgroup: tree.Cgroup(parent), Record: &record.Record{
			Kind:      record.KindPod,
			Namespace: r.Record.Namespace, Pod: r.Record.Pod, UID: r.Record.UID,
		}})
	}
	return out
}

// clearer clears cgroups, or prints what it would do.
type clearer struct {
	out    io.Writer
	dryRun bool
	brief  bool // a line for each pod only, see summary
	pods   []string
}

// say prints one step. That comes after the step: one that failed is an error
// and nothing else.
func (c *clearer) say(r inspect.Recorded, format string, args ...any) {
	if c.brief {
		if pod := r.Record.Namespace + "/" + r.Record.Pod; !slices.Contains(c.pods, pod) {
			c.pods = append(c.pods, pod)
		}
		return
	}
	subject := r.Record.Namespace + "/" + r.Record.Pod
	if r.Record.Container != "" {
		subject += " " + r.Record.Container
	}
	verb := ""
	if c.dryRun {
		verb = "would "
	}
	fmt.Fprintf(c.out, "%s: %s%s\n", safe(subject), verb, oneLine(fmt.Sprintf(format, args...)))
}

// summary prints the pods of which something was changed.
func (c *clearer) summary() {
	for _, pod := range c.pods {
		fmt.Fprintf(c.out, "%s: done\n", safe(pod))
	}
}

// clear marks a cgroup, then takes its limits off: in the other order a running
// plugin could restore them in between.
func (c *clearer) clear(r inspect.Recorded) error {
	if !r.Record.Cleared {
		if err := c.mark(r, true); err != nil {
			return err
		}
		c.say(r, "mark as cleared")
	}
	if r.Record.Observed {
		return nil // nothing was written
	}
	return errors.Join(c.lift(r), c.verify(r))
}

// lift takes the limits and the weight of a record off.
func (c *clearer) lift(r inspect.Recorded) error {
	var errs []error
	for _, line := range r.Record.Settings.Removals().Lines() {
		var err error
		if !c.dryRun {
			err = r.Cgroup.Write(line)
		}
		switch {
		case errors.Is(err, blkio.ErrNoDevice): // the disk is gone, and its limits with it
		case err != nil:
			errs = append(errs, err)
		default:
			c.say(r, "write %s %q", line.File, line.Text)
		}
	}
	if !c.dryRun && r.Record.Kind == record.KindContainer {
		errs = append(errs, r.Cgroup.ReplaceIOMaxBelow(liftedBelow(r.Record)))
	}
	return errors.Join(errs...)
}

// verify marks the cgroup once more if the plugin, which was looking at it as
// we came, has written its record again.
func (c *clearer) verify(r inspect.Recorded) error {
	if c.dryRun {
		return nil
	}
	now, err := record.Read(r.Cgroup, r.Record.Kind)
	if err != nil || now == nil || now.Cleared {
		return err
	}
	r.Record = now
	if err := c.mark(r, true); err != nil {
		return err
	}
	return c.lift(r)
}

func (c *clearer) undo(r inspect.Recorded) error {
	if !r.Record.Cleared {
		return nil
	}
	if err := c.mark(r, false); err != nil {
		return err
	}
	c.say(r, "remove the mark, the plugin restores the limits")
	return nil
}

func (c *clearer) mark(r inspect.Recorded, cleared bool) error {
	if c.dryRun {
		return nil
	}
	rec := *r.Record
	rec.Cleared = cleared
	return record.Write(r.Cgroup, &rec)
}

// liftedBelow are the same values in a cgroup that the runtime has below the
// container's.
func liftedBelow(r *record.Record) []blkio.Replacement {
	var out []blkio.Replacement
	for _, s := range r.Settings {
		if s.IsLimit() {
			out = append(out, blkio.Replacement{Address: s.Address, From: s.Amount, To: s.Removal().Amount})
		}
	}
	return out
}
