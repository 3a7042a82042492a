package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/plugin/report"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/strict"
)

const checkLong = `Show the limits that a pod would get on this node, or the errors in its annotations.
The pod is not started.

PATH is a file, a directory, or - for stdin, with or without -f. A directory is
read with its subdirectories: all .yaml, .yml and .json files. A file may have any
number of Pods, workloads with a pod template (Deployment, StatefulSet, DaemonSet,
ReplicaSet, ReplicationController, Job, CronJob, PodTemplate), and lists of them.
The limits of PersistentVolumeClaims and VolumeAttributesClasses are checked as well.

In objects of other kinds, such as those of operators, and in the values of Helm
charts, each field with pod templates or annotations of this program is read. Their
containers and mounts can be incomplete: what is not there is unknown, and no error.

First are the findings in the files, with FILE:LINE: annotations in the wrong place,
misspelled names of annotations, and objects that the API server would reject.
Then each pod has a table of its limits, its errors, and lines that begin with "effect:". They describe the effect of the errors under the
node's policy: a container is not created, starts without a limit (onError: ignore),
or nothing is written (mode: observe). With -o wide the table has the lines that the
plugin would write, those of the pod's backstop included. A second table shows whether each
weight has an effect on this node, or why it has none. Lines that begin with "note:" show
what a limit means in operations per second, and what the pod takes of the budget of its
namespace.

The rule of the policy is that for the pod's namespace ("default" if the manifest has
none), labels and QoS class; its name is after that of the pod.

The mounts are derived from the manifest. The disk of a PersistentVolumeClaim or
a CSI volume is unknown until the volume is mounted. Limits on it have a placeholder
and a warning.

The policy is that of the plugin that runs on this node: its file and its mode. If no
plugin runs here, it is the built-in policy. --policy selects another one. A line on
stderr names the policy ("policy" with -o json).

With --offline, check reads nothing of a node, and works on any system. It checks the
grammar, contradictions within the manifest, and the bounds of a given --policy.
Disks have placeholders. Lines that begin with "unknown:" list the facts that the
result depends on and that only a node can know. They are not errors. One that several
pods share is at the end, with the number of pods.

With --policy and no PATH, check only reads the policy, and prints its errors and warnings.

The output of --offline is the same each time, so that a diff shows what a change of the
policy decides otherwise: docs/how-to/test-a-policy.md.

The exit status is 1 if there are errors, 0 if there are only warnings, 2 if there
is no pod to check, 3 if the node or a file cannot be read.`

type checkOptions struct {
	files   []string
	handler string
	offline bool
	output  output
}

func (a *app) checkCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check [-f] PATH... | --policy FILE",
		Short: "Show the limits that a pod would get on this node, or its errors",
		Long:  checkLong,
		Example: `  nri-blkio check -f pod.yaml
  kubectl get pod db-0 -o yaml | nri-blkio check -f -
  nri-blkio check -f manifests/ -f extra.yaml --policy policy.yaml -o json
  nri-blkio check --offline -f manifests/    # on a workstation or in CI
  nri-blkio check --policy policy.yaml       # the policy alone`,
		Args: cobra.ArbitraryArgs, // manifests, as after -f
		RunE: func(cmd *cobra.Command, args []string) error {
			o.files = append(o.files, args...)
			switch {
			case cmd.Flag("policy").Changed && a.opts.policy == "": // such as an unset variable of a script
				return usage(errors.New("--policy: the name of a file is empty"))
			case len(o.files) > 0:
				return a.check(cmd.Context(), &o)
			case a.opts.policy == "":
				return usage(errors.New("check: no manifest (write -f PATH or --policy FILE)"))
			}
			return a.checkPolicy(&o)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "file", "f", nil, "a manifest, a directory of them, or - for stdin; may be repeated")
	f.BoolVar(&o.offline, "offline", false, "check without a node: report what only a node can know as unknown")
	f.StringVar(&o.handler, "handler", "", "the runtime handler that the pod's RuntimeClass names")
	o.output.add(cmd, outputWide)
	a.opts.addPolicyFlag(cmd)
	a.opts.addCheckFlags(cmd)
	return cmd
}

func (a *app) check(ctx context.Context, o *checkOptions) error {
	set, err := a.readManifests(o.files...)
	if err != nil {
		return err
	}
	if set.IsEmpty() && !manifest.HasErrors(set.Findings) {
		r := check.Report{Findings: set.Findings}
		if err := a.print(outputTable, r, func(out *bytes.Buffer) { report.WriteCheck(out, &r, false) }); err != nil {
			return err
		}
		return usage(fmt.Errorf("read %s: found no pod and no pod template", strings.Join(o.files, ", ")))
	}
	if !o.output.isDocument() {
		terminal.Notes(a.stderr, "left out", set.OtherKinds()...)
	}
	p, source, err := a.findPolicy(o.offline)
	if err != nil {
		return err
	}
	a.warnOf(p)
	c := check.Checker{Policy: p, Handler: o.handler}
	if !o.offline {
		if c.Node, err = a.readNode(ctx, p); err != nil {
			if statusOf(err) == exitUndetermined {
				err = fmt.Errorf("%w (check without a node: --offline)", err)
			}
			return err
		}
	}
	if !o.output.isDocument() && a.opts.policy == "" && !o.offline {
		terminal.Notes(a.stderr, "policy", source.Name)
	}
	r := c.Report(ctx, &set, source)
	if err := a.print(o.output, r, func(out *bytes.Buffer) { report.WriteCheck(out, &r, o.output == outputWide) }); err != nil {
		return err
	}
	if r.HasErrors() {
		return findings()
	}
	return nil
}

// checkPolicy reads the policy of --policy alone. Its warnings are on stderr.
func (a *app) checkPolicy(o *checkOptions) error {
	p, err := a.opts.loadPolicy()
	if err != nil {
		return err
	}
	a.warnOf(p)
	if len(p.NamespaceKeys()) > 0 {
		terminal.Notes(a.stderr, "warning", "namespaceSelector needs the cluster part on each node: without it, the labels of namespaces are unknown, and no rule with it matches")
	}
	r := check.Report{Policy: a.opts.policy, Findings: []manifest.Finding{}, Pods: []check.Result{}}
	return a.print(o.output, r, func(out *bytes.Buffer) {
		fmt.Fprintf(out, "%s is valid (classes: %d, rules: %d, budgets: %d)\n", a.opts.policy, len(p.Classes), len(p.Rules), len(p.Budgets))
		if promised := p.Promised(); promised != "" {
			fmt.Fprintln(out, promised)
		}
	})
}

// findPolicy returns the policy of --policy, or that of the node.
func (a *app) findPolicy(offline bool) (*policy.Policy, check.PolicySource, error) {
	if a.opts.policy == "" && !offline {
		p, source := a.runningPolicy()
		return p, source, nil
	}
	p, err := a.opts.loadPolicy()
	source := check.PolicySource{Name: a.opts.policy}
	if a.opts.policy == "" {
		source = check.PolicySource{Name: check.BuiltIn, Unknown: "the built-in one was used"}
	}
	return p, source, err
}

// readManifests reads files, directories and stdin, in the order of the command line.
func (a *app) readManifests(names ...string) (manifest.Set, error) {
	var set manifest.Set
	for i, name := range names {
		if name == "-" && slices.Contains(names[:i], name) {
			return set, usage(errors.New("-f -: stdin can be read only once"))
		}
		found, err := a.readManifest(name)
		if err != nil {
			return set, err
		}
		set.Add(found)
	}
	set.Link()
	return set, nil
}

func (a *app) readManifest(name string) (manifest.Set, error) {
	if name == "-" {
		return manifest.Read(a.stdin, "stdin")
	}
	f, err := os.Open(name)
	if err != nil {
		return manifest.Set{}, named(fmt.Errorf("read manifest: %w", err))
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return manifest.ReadFS(os.DirFS(name), filepath.ToSlash(name))
	}
	return manifest.Read(f, name)
}

func (o *options) addPolicyFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.policy, "policy", "", "the node policy file (default: the built-in policy;\nfor check and devices: that of the running plugin)")
}

// loadPolicy returns the policy of --policy, or the built-in policy.
func (o *options) loadPolicy() (*policy.Policy, error) {
	if o.policy == "" {
		return o.withMode(policy.Default())
	}
	data, err := readSmall(o.policy)
	if err != nil {
		return nil, named(fmt.Errorf("read policy: %w", err))
	}
	p, err := o.parsePolicy(data)
	if err != nil {
		return nil, usage(fmt.Errorf("read %s: %w", o.policy, err))
	}
	return p, nil
}

func (a *app) warnOf(p *policy.Policy) { terminal.Notes(a.stderr, "warning", p.Warnings()...) }

// readSmall reads a file for package strict, which refuses a larger one.
func readSmall(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, strict.MaxSize+1))
}

func (o *options) parsePolicy(data []byte) (*policy.Policy, error) {
	p, err := policy.ParseFile(data)
	if err != nil {
		return nil, err
	}
	return o.withMode(p)
}

func (o *options) withMode(p *policy.Policy) (*policy.Policy, error) {
	switch m := policy.Mode(o.mode); m {
	case "":
	case policy.ModeEnforce, policy.ModeObserve:
		return p.WithMode(m), nil
	default:
		return nil, usage(fmt.Errorf("--mode: unknown value %q (write %s or %s)", o.mode, policy.ModeEnforce, policy.ModeObserve))
	}
	return p, nil
}
