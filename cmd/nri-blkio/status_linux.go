package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/plugin/report"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
)

const statusLong = `Show the state of the plugin's parts, then the requested limits and those in
force for each container and pod that the plugin knows. status reads the records on
the cgroups and the kernel's io.max and io.weight; the plugin need not run. Values that
are not in force come first.

The first table has a row for each part of "nri-blkio run" on this node:
  limits     connected, disconnected (containers start without limits), standby
             (another instance serves the node), or not running
  writeback  repair, observe, gated or unavailable (DETAIL has the reason), or not
             running
  validator  only where it runs (DETAIL says if the runtime ignores the plugins
             that a pod requires)
  cluster    only where it runs: connected or disconnected (what it has written stays)
A warning below it names each part that has rejected an edit of its policy file.

STATE of a requested value is one of
  ok        in force
  drift     the kernel has another value; a running plugin restores it
  missing   the kernel has no limit there; the disk may have been removed
  cleared   removed by "nri-blkio clear"
  observed  decided, but not written (mode: observe)
  error     requested, but not enforced; the text has the reason

Values are as in an annotation: wbps=50Mi is in bytes per second, wiops=2k in operations
per second, and max is no limit. USED is how much of the limit was used in the second that
status takes. With --pod the columns that are the same in each row are
left out. With -o wide the table has all columns: the annotation, class or rule that a value is
from, and the value in force. It also has the rows of backstops that are in force.

If the policy has budgets, a table has for each namespace what its pods are granted on a disk
together ("budgets" with -o json). GRANTED is max if one of them has no limit there. Weights
above a budget are scaled down.

Below that are pods with data of ended containers left to write ("dead" with -o json).
Other writers of the same files wait for this data. LEFT is what is charged to the pod,
and not to its running containers, on all disks. CONTAINER is the last one whose limits
were not lifted. DRAINS AT is the limit at which its data is written: its own, the
pod's, the smaller of both, or none.

Next are files whose owner is not their writer ("writeback" with -o json): their
owner, their writers with their shares, and MISPLACED, the bytes that were charged to
other cgroups than the writer's. STATE is one of
  waiting    the file is not moved yet
  repairing  it is being moved to its writer
  contested  several containers write it, and the policy selects the owner
  failed     it could not be moved; the text has the reason, and the plugin retries
` + "`nri-blkio owner FILE`" + ` shows the owner of any file.

Orphaned volumes, still mounted although their pod no longer exists, are listed last
("orphans" with -o json), with or without limits: see "nri-blkio devices --help".

The exit status is 1 if a requested value is not in force (drift, missing, error), if a
weight has no effect, if a part has rejected its policy file, or if limits are requested
and the limits part is not connected.
It is 3 if a record or a value of the kernel could not be read; the rest is shown.`

type statusOptions struct {
	pods   podsFlags
	strict bool
	brief  bool
	watch  bool
	// noHeaders leaves all out but the rows of values.
	noHeaders bool
	ready     string // a part
	// removed asks only whether all was removed.
	removed bool
	output  output
}

func (a *app) statusCommand() *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show requested limits and limits in force",
		Long:  statusLong,
		Example: `  nri-blkio status
  nri-blkio status --pod prod/db-0
  nri-blkio status -n prod -w
  nri-blkio status -l app=db
  nri-blkio status --brief
  nri-blkio status -o wide
  nri-blkio status --strict          # exit status 1 for cleared and observed values as well
  nri-blkio status --ready limits    # for a probe: exit status 1 unless it is connected
  nri-blkio status --removed         # before an uninstall: exit status 1 unless all is removed
  nri-blkio status -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.ready != "":
				return a.ready(o.ready)
			case o.removed:
				return a.removed()
			}
			return a.status(cmd.Context(), &o)
		},
	}
	o.pods.add(a, cmd)
	a.opts.addStateFlag(cmd)
	a.opts.addEndpointFlag(cmd, endpointForLabels)
	cmd.Flags().BoolVar(&o.strict, "strict", false, "also exit with 1 for cleared and observed values, for weights on disks with\nweights: off, if the limits part is not connected although no limits are requested,\nand if the pod of --pod requests nothing")
	cmd.Flags().StringVar(&o.ready, "ready", "", "print the state of one `part` only (limits, writeback, validator\nor cluster);\nexit with 1 unless it is connected (writeback: unless it runs)")
	cmd.Flags().BoolVar(&o.removed, "removed", false, "print only what is still in force; exit with 1 unless the limits part runs\nin mode observe, and nothing of nri-blkio is in force")
	a.opts.addVolumeFlags(cmd)
	o.output.add(cmd, outputWide, outputName)
	f := cmd.Flags()
	f.BoolVar(&o.brief, "brief", false, "print one line: the number of limits in force, or the problems")
	f.BoolVarP(&o.watch, "watch", "w", false, "print it again every two seconds")
	f.BoolVar(&o.noHeaders, "no-headers", false, "print only the rows of values, without a header")
	completes(cmd, "ready", "limits", "writeback", "validator", "cluster")
	cmd.MarkFlagsMutuallyExclusive("ready", "removed", "brief")
	cmd.MarkFlagsMutuallyExclusive("ready", "removed", "watch")
	cmd.MarkFlagsMutuallyExclusive("brief", "output")
	return cmd
}

func (a *app) status(ctx context.Context, o *statusOptions) error {
	for isFirst := true; ; isFirst = false {
		begin := time.Now()
		var out bytes.Buffer
		if o.output == outputYAML && !isFirst {
			out.WriteString("---\n")
		}
		err := a.writeStatus(ctx, o, &out)
		if !o.watch {
			_, writeErr := a.stdout.Write(out.Bytes())
			return cmp.Or(writeErr, err)
		}
		if err != nil && !isSilent(err) {
			notes := a.stderr
			if !o.output.isDocument() {
				notes = &out // a later one replaces it on a terminal
			}
			terminal.Notes(notes, "nri-blkio", terminal.ErrorLines(err)...)
		}
		if err := a.screen(o.output).show(out.Bytes()); err != nil {
			return err
		}
		if reminder.Sleep(ctx, time.Until(begin.Add(2*time.Second))); ctx.Err() != nil {
			return err
		}
	}
}

// writeStatus writes the report, or a part of it. The error is the exit status.
func (a *app) writeStatus(ctx context.Context, o *statusOptions, out *bytes.Buffer) error {
	h, err := a.host()
	if err != nil {
		return err
	}
	defer h.Close()
	filter, err := o.pods.filter(ctx, a)
	if err != nil {
		return err
	}
	s, readErr := h.Status(ctx, filter)
	a.addValidatorOff(s.Parts)
	if !o.brief && o.output != outputName {
		h.MeasureUse(ctx, s.Values, a.sample)
	}
	isEmpty := o.strict && filter.Name != "" && len(s.Values) == 0
	err = o.output.write(out, s, func(out *bytes.Buffer) {
		switch isWide := o.output == outputWide; {
		case o.brief:
			text := s.Brief(o.strict)
			if isEmpty && !s.HasFindings(true) {
				text = "1 problem: " + filter.String() + " requests nothing"
			}
			if readErr != nil {
				text += " (not all could be read)"
			}
			fmt.Fprintln(out, terminal.EscapeLine(text))
		case o.output == outputName:
			for _, pod := range s.Pods() {
				fmt.Fprintln(out, terminal.Escape(pod))
			}
		case o.noHeaders:
			report.WriteLimits(out, &s, isWide)
		default:
			report.WriteStatus(out, &s, isWide, filter.Name != "")
		}
	})
	if err != nil {
		return err
	}
	if isEmpty || s.HasFindings(o.strict) {
		return &exitError{exitFindings, readErr}
	}
	return readErr
}

// addValidatorOff adds to the row of the validator that the runtime does not check which plugins a pod requires.
func (a *app) addValidatorOff(parts []inspect.Part) {
	containerd := runtimeconfig.Config{HostRoot: a.opts.hostRoot}
	file, isOff := containerd.ValidatorOff()
	isCRIO := slices.ContainsFunc(parts, func(p inspect.Part) bool { return p.Report != nil && strings.HasPrefix(p.Report.Runtime, "cri-o") })
	for i := range parts {
		if p := &parts[i]; p.Part == health.Validator && isOff && !isCRIO {
			p.Detail = strings.TrimPrefix(p.Detail+", required-plugins.noderesource.dev has no effect: default_validator is not enabled in "+file, ", ")
		}
	}
}

// ready serves probes: it reads only the state of one part, and returns findings unless that part works.
func (a *app) ready(part string) error {
	if known := []string{health.Limits, health.Writeback, health.Validator, health.Cluster}; !slices.Contains(known, part) {
		return usage(fmt.Errorf("--ready: unknown part %q (write %s, %s, %s or %s)", part, known[0], known[1], known[2], known[3]))
	}
	p, err := inspect.ReadPart(a.opts.host(a.opts.stateDir), part)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, terminal.EscapeLine(p.String()))
	if p.Works() {
		return nil
	}
	return findings()
}

// removed prints what of the plugin is in force on the node, and returns findings unless that is nothing, and an
// instance in mode observe keeps it so.
func (a *app) removed() error {
	h, err := a.host()
	if err != nil {
		return err
	}
	defer h.Close()
	r, err := h.Removal(a.opts.disks())
	lines := append([]string{r.Limits.String()}, r.InForce...)
	if len(r.InForce) == 0 {
		lines = append(lines, "nothing is in force")
	}
	for _, line := range lines {
		fmt.Fprintln(a.stdout, terminal.EscapeLine(line))
	}
	if err == nil && !r.IsDone() {
		return findings()
	}
	return err
}
