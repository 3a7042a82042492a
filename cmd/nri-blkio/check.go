package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
)

const checkLong = `Say what a pod would get on this node, without starting it: which line would be
written for which disk, and why, or what is wrong with its annotations.

FILE holds one or more Pods, or workloads with a pod template (Deployment,
StatefulSet, DaemonSet, ReplicaSet, Job, CronJob), YAML or JSON; - is stdin.
Objects of other kinds are left out.

The mounts are derived from the manifest. The disk of a PersistentVolumeClaim or
a CSI volume is known only once it is mounted: limits on it are shown with a
disk that stands for it, and with a warning. A target @VOLUME is found where it
will be on a node, by the name of the kubelet's directory: not that of a hostPath
volume, a claim, a raw block or an image volume.

The exit status is 1 if anything is wrong, 0 if there are only warnings.`

type checkOptions struct {
	file    string
	handler string
	output  output
}

func (a *app) checkCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check -f FILE",
		Short: "What a pod would get on this node, or what is wrong",
		Long:  checkLong,
		Example: `  nri-blkio check -f pod.yaml
  kubectl get pod db-0 -o yaml | nri-blkio check -f -
  nri-blkio check -f deployment.yaml --policy policy.yaml -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.check(cmd.Context(), &o) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "file", "f", "", "the manifest, or - for stdin")
	f.StringVar(&o.handler, "handler", "", "the runtime handler that the pod's RuntimeClass names")
	o.output.add(cmd)
	a.opts.addPolicyFlag(cmd)
	a.opts.addRootfsFlags(cmd)
	a.opts.addKubeletFlag(cmd)
	// The flag was defined above: this cannot fail.
	_ = cmd.MarkFlagRequired("file")
	return cmd
}

func (a *app) check(ctx context.Context, o *checkOptions) error {
	pods, others, err := a.readManifestFile(o.file)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		return fmt.Errorf("read %s: no pod and no pod template in it", o.file)
	}
	if len(others) > 0 && !o.output.json() {
		notes(a.stderr, "left out", slices.Compact(slices.Sorted(slices.Values(others))))
	}
	tree, err := a.openCgroups(a.opts.cgroupDir())
	if err != nil {
		return err
	}
	defer tree.Close()
	kubelet, err := a.opts.kubeletDir()
	if err != nil {
		return err
	}
	if err := a.opts.checkRuntimeFlags(); err != nil {
		return err
	}
	layers, err := a.opts.layers(ctx, "", "")
	if err != nil && !errors.Is(err, runtimeconfig.ErrNoSocket) {
		notes(a.stderr, "rootfs goes by the runtime's configuration files", []string{err.Error()})
	}
	n, err := a.opts.openNode()
	if err != nil {
		return err
	}
	w, err := readWeightSupport(tree, a.opts.sysfs())
	if err != nil {
		return err
	}
	c := &checker{
		policy: n.policy, handler: o.handler, weights: w, layers: layers, nodeMemory: n.memory,
		volumes: volumes{storage: n.storage, kubeletRoot: kubelet},
	}
	stack, err := a.opts.sysfs().Stack()
	if err != nil {
		return err
	}
	results := make([]podResult, 0, len(pods))
	for i := range pods {
		r := c.pod(ctx, &pods[i])
		r.warnAbove(stack)
		results = append(results, r)
	}
	return a.printCheck(results, o.output.json())
}

func (a *app) readManifestFile(name string) ([]manifest, []string, error) {
	in := a.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, nil, fmt.Errorf("read manifest: %w", err)
		}
		defer f.Close()
		in = f
	}
	pods, others, err := readManifests(in)
	if err != nil {
		return nil, nil, fmt.Errorf("read manifest %s: %w", name, err)
	}
	return pods, others, nil
}

func (a *app) printCheck(results []podResult, asJSON bool) error {
	failed := slices.ContainsFunc(results, func(r podResult) bool { return len(r.Errors) > 0 })
	if asJSON {
		if err := printJSON(a.stdout, map[string]any{"pods": results}); err != nil {
			return err
		}
	} else {
		for i, r := range results {
			if i > 0 {
				fmt.Fprintln(a.stdout)
			}
			if err := r.print(a.stdout); err != nil {
				return err
			}
		}
	}
	if failed {
		return errReported
	}
	return nil
}

// print writes one pod: what would be written, then what there is to say.
func (r *podResult) print(out io.Writer) error {
	fmt.Fprintf(out, "%s %s\n", safe(r.Kind), safe(r.Namespace+"/"+r.Name))
	if len(r.Writes) > 0 {
		t := newTable(out, "CGROUP", "DISK", "FILE", "LINE", "FROM")
		for _, w := range r.Writes {
			t.row(w.cgroup(), w.Disk, w.File, w.Line, w.from())
		}
		if err := t.flush(); err != nil {
			return err
		}
	} else if len(r.Errors) == 0 {
		fmt.Fprintln(out, "nothing to limit")
	}
	notes(out, "error", r.Errors)
	notes(out, "warning", r.Warnings)
	notes(out, "skipped", r.Skipped)
	return nil
}

func (w *podWrite) cgroup() string {
	if w.Container == "" {
		return "pod"
	}
	return "container " + w.Container
}

// from lists where a line's values come from, each once.
func (w *podWrite) from() string {
	text := ""
	for _, s := range w.Sources {
		if text != "" {
			text += ", "
		}
		text += s.String()
	}
	return text
}

// ioMaxLine is the line that would be written, as far as it is known.
func ioMaxLine(d blkio.Disk, l blkio.Limits) string {
	if isUnknown(d) {
		return "MAJ:MIN " + l.String()
	}
	return blkio.DevLimits{Dev: d.Dev, Limits: l}.String()
}
