package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
)

// checker decides for manifests what the plugin would decide for containers.
type checker struct {
	policy  *policy.Policy
	handler string
	weights weightSupport
	layers  plugin.Layers
	volumes volumes

	nodeMemory uint64 // in bytes, 0 where it is unknown
}

// podResult is what check reports of one pod.
type podResult struct {
	Kind      string            `json:"kind"`
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Position  manifest.Position `json:"position"` // of the pod, or of the pod template
	Writes    []podWrite        `json:"writes"`
	Errors    []string          `json:"errors,omitempty"`
	Effects   []string          `json:"effects,omitempty"` // what the node's policy makes of the errors
	Warnings  []string          `json:"warnings,omitempty"`
	Skipped   []string          `json:"skipped,omitempty"`

	lines map[string]int // of the annotations
}

// podWrite is one line for one file of one cgroup.
type podWrite struct {
	Container string          `json:"container,omitempty"` // "": the pod's own cgroup
	Disk      string          `json:"disk,omitempty"`
	Dev       string          `json:"dev,omitempty"` // "" where it is not known yet
	File      string          `json:"file"`
	Line      string          `json:"line"`
	Sources   []policy.Source `json:"sources"`
}

func (c *checker) pod(ctx context.Context, m *manifest.Pod) podResult {
	r := podResult{
		Kind: m.Kind, Namespace: m.Namespace, Name: m.Name, Position: m.Position,
		Writes: []podWrite{}, lines: m.Lines,
	}
	req := policy.ParseRequest(m.Annotations)
	if req.Empty() {
		return r
	}
	vols := c.volumes
	vols.targets = req.Paths()
	vols.rootfs = c.layers.Of(c.handlerOf(m)).Backing(ctx, vols.storage)
	containers := vols.containers(ctx, m)
	for i := range containers {
		bytes := min(orNoMemory(m.Containers[i].MemoryLimit), orNoMemory(m.MemoryLimit))
		containers[i].MemoryLimited = policy.MemoryBoundsDirty(bytes, c.nodeMemory)
	}
	c.checkNames(&r, req, containers)
	o := outcome{checker: c, result: &r, request: req, runtime: c.checkRuntime(&r, req, m)}
	for i := range containers {
		o.container(containers[i], m.Containers[i].Role)
	}
	o.pod()
	r.tidy()
	return r
}

// checkNames finds what a plugin cannot know while a pod's containers come one
// by one: a name that never comes is an error here, a path a warning.
func (c *checker) checkNames(r *podResult, req *policy.Request, containers []policy.Container) {
	known := func(name string) bool {
		return slices.ContainsFunc(containers, func(c policy.Container) bool { return c.Name == name })
	}
	// Unmatched is about names too; stand-ins leave it the paths.
	all := slices.Clone(containers)
	for _, name := range req.ContainerNames() {
		if known(name) {
			continue
		}
		all = append(all, policy.Container{Name: name})
		var names []string
		for _, c := range containers {
			names = append(names, c.Name)
		}
		r.Errors = append(r.Errors, fmt.Sprintf("unknown container %q in the annotations (the pod has %s)",
			name, strings.Join(names, ", ")))
	}
	for _, w := range req.Unmatched(all) {
		// A manifest has all that will come.
		r.Warnings = append(r.Warnings, strings.TrimSuffix(w, " yet"))
	}
}

// checkRuntime returns why no container of the pod can be limited under its runtime handler.
func (c *checker) checkRuntime(r *podResult, req *policy.Request, m *manifest.Pod) error {
	if m.RuntimeClass != "" && c.handler == "" {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the handler of RuntimeClass %q is unknown (set --handler to check it)", m.RuntimeClass))
		return nil
	}
	return c.policy.CheckRuntime(req, c.handler)
}

// handlerOf is the handler whose writable layers the pod's containers have. A
// RuntimeClass mostly has its handler's name; where it has not, and --handler
// is not given, the layers are those of handlers that configure none.
func (c *checker) handlerOf(m *manifest.Pod) string { return cmp.Or(c.handler, m.RuntimeClass) }

// add takes the decision for one cgroup into the result.
func (c *checker) add(r *podResult, container string, d policy.Desired, err error) {
	r.Errors = append(r.Errors, r.decisionErrors(d, err)...)
	for _, disk := range d.Disks {
		r.Writes = append(r.Writes, limitWrite(container, disk))
	}
	if d.Weight != 0 {
		c.addWeight(r, container, d)
	}
	prefix := "pod: "
	if container != "" {
		prefix = "container " + container + ": "
	}
	for _, w := range d.Warnings {
		r.Warnings = append(r.Warnings, prefix+w)
	}
	for _, s := range d.Skipped {
		r.Skipped = append(r.Skipped, prefix+s.What+": "+s.Reason)
	}
	if d.SkippedMore > 0 {
		r.Skipped = append(r.Skipped, prefix+"and "+strconv.Itoa(d.SkippedMore)+" more")
	}
}

// decisionErrors returns what is wrong, each with the line of its annotation.
func (r *podResult) decisionErrors(d policy.Desired, err error) []string {
	var out []string
	for _, e := range d.Errors {
		out = append(out, r.positioned(e))
	}
	if err != nil && len(out) == 0 {
		out = append(out, r.positioned(err))
	}
	return out
}

func (r *podResult) positioned(err error) string {
	var e *policy.Error
	if !errors.As(err, &e) || r.lines[e.Annotation] == 0 {
		return err.Error()
	}
	at := r.Position
	at.Line = r.lines[e.Annotation]
	return at.String() + ": " + err.Error()
}

func limitWrite(container string, d policy.DiskLimits) podWrite {
	w := podWrite{Container: container, Disk: d.Disk.Name, File: "io.max", Line: ioMaxLine(d.Disk, d.Limits)}
	if !isUnknown(d.Disk) {
		w.Dev = d.Disk.Dev.String()
	}
	for k, s := range d.Sources {
		if d.Limits[k] != blkio.Unset && !slices.Contains(w.Sources, s) {
			w.Sources = append(w.Sources, s)
		}
	}
	return w
}

func (c *checker) addWeight(r *podResult, container string, d policy.Desired) {
	r.Writes = append(r.Writes, podWrite{
		Container: container, File: "io.weight", Line: strconv.Itoa(int(d.Weight)),
		Sources: []policy.Source{d.WeightSource},
	})
	if w := c.weights.warning(); w != "" {
		r.Warnings = append(r.Warnings, w)
	}
}

// addBackstop adds what the pod's cgroup gets beyond its total while all of the
// pod's lasting containers run.
func (c *checker) addBackstop(r *podResult, total policy.Desired, granted []policy.Desired) {
	names := map[blkio.Dev]blkio.Disk{}
	for _, g := range granted {
		for _, d := range g.Disks {
			names[d.Disk.Dev] = d.Disk
		}
	}
	for _, b := range policy.Backstop(granted) {
		rest := b.Limits
		for _, d := range total.Disks {
			if d.Disk.Dev != b.Dev {
				continue
			}
			for k, rate := range d.Limits {
				if rate != blkio.Unset && rate <= rest[k] {
					rest[k] = blkio.Unset // the total is the tighter one
				}
			}
		}
		if rest.IsZero() {
			continue
		}
		r.Writes = append(r.Writes, limitWrite("", policy.DiskLimits{
			Disk: names[b.Dev], Limits: rest, Sources: sameSource(policy.Source{Kind: policy.FromBackstop}),
		}))
	}
}

func sameSource(s policy.Source) (out [blkio.NumLimits]policy.Source) {
	for k := range out {
		out[k] = s
	}
	return out
}

func (r *podResult) tidy() {
	for _, list := range []*[]string{&r.Errors, &r.Warnings, &r.Skipped} {
		var unique []string
		for _, line := range *list {
			if !slices.Contains(unique, line) {
				unique = append(unique, line)
			}
		}
		*list = unique
	}
}

// orNoMemory returns a memory limit in bytes as policy has it.
func orNoMemory(limit uint64) uint64 {
	if limit == 0 {
		return policy.NoMemory
	}
	return limit
}

// weightSupport says what io.weight does on this node.
type weightSupport struct {
	kernel blkio.Tri
	disks  map[blkio.Dev]bool // where iocost is on
	bfq    []string           // disks that bfq schedules
}

func readWeightSupport(tree *cgroupfs.Hierarchy, sys storage.Sysfs) (weightSupport, error) {
	features, err := tree.Probe()
	if err != nil {
		return weightSupport{}, err
	}
	w := weightSupport{kernel: features.IOWeight}
	w.disks, err = tree.ReadIOCostQOS()
	if err != nil && !errors.Is(err, blkio.ErrNotSupported) {
		return weightSupport{}, err
	}
	disks, err := sys.Disks()
	if err != nil {
		return weightSupport{}, err
	}
	for _, d := range disks {
		if d.Scheduler == "bfq" {
			w.bfq = append(w.bfq, d.Name)
		}
	}
	return w, nil
}

// active says that io.weight has an effect on some disk.
func (w *weightSupport) active() bool {
	for _, on := range w.disks {
		if on {
			return true
		}
	}
	return false
}

// warning says why a weight has no effect on this node, or nothing. The first
// part is what the plugin says.
func (w *weightSupport) warning() string {
	if w.active() {
		return ""
	}
	text := "io.weight has no effect on this node: no disk has io.cost.qos enabled"
	if len(w.bfq) > 0 {
		text += ", and bfq (" + strings.Join(w.bfq, ", ") + ") looks at io.bfq.weight alone"
	}
	return text
}
