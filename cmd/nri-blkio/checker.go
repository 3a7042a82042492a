package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin"
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

// podResult is what check says of one pod.
type podResult struct {
	Kind      string     `json:"kind"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Writes    []podWrite `json:"writes"`
	Errors    []string   `json:"errors,omitempty"`
	Warnings  []string   `json:"warnings,omitempty"`
	Skipped   []string   `json:"skipped,omitempty"`
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

func (c *checker) pod(ctx context.Context, m *manifest) podResult {
	r := podResult{Kind: m.Kind, Namespace: m.Namespace, Name: m.Name, Writes: []podWrite{}}
	req := policy.ParseRequest(m.Annotations)
	if req.Empty() {
		return r
	}
	vols := c.volumes
	vols.targets = req.Paths()
	vols.rootfs = c.layers.Of(c.handlerOf(&m.Spec)).Backing(ctx, vols.storage)
	containers, problems := vols.containers(ctx, &m.Spec)
	r.Errors = append(r.Errors, problems...)
	c.checkNames(&r, req, containers)
	c.checkRuntime(&r, req, &m.Spec)

	inits := len(m.Spec.InitContainers)
	var granted []policy.Desired // what runs together once the init containers are done
	for i, ctr := range containers {
		spec := containerSpec(&m.Spec, i)
		ctr.MemoryLimited = policy.MemoryBoundsDirty(min(memoryLimit(&spec.Resources), memoryLimit(m.Spec.Resources)), c.nodeMemory)
		d, err := c.policy.Container(req, ctr)
		c.add(&r, ctr.Name, d, err)
		if i >= inits || isSidecar(spec) {
			granted = append(granted, d)
		}
	}
	total, err := c.policy.PodTotal(req, containers)
	c.add(&r, "", total, err)
	c.addBackstop(&r, total, granted)
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

func (c *checker) checkRuntime(r *podResult, req *policy.Request, spec *corev1.PodSpec) {
	if spec.RuntimeClassName != nil && c.handler == "" {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the handler of RuntimeClass %q is unknown (set --handler to check it)", *spec.RuntimeClassName))
		return
	}
	if err := c.policy.CheckRuntime(req, c.handler); err != nil {
		r.Errors = append(r.Errors, err.Error())
	}
}

// handlerOf is the handler whose writable layers the pod's containers have. A
// RuntimeClass mostly has its handler's name; where it has not, and --handler
// is not given, the layers are those of handlers that configure none.
func (c *checker) handlerOf(spec *corev1.PodSpec) string {
	if c.handler == "" && spec.RuntimeClassName != nil {
		return *spec.RuntimeClassName
	}
	return c.handler
}

// add takes the decision for one cgroup into the result.
func (c *checker) add(r *podResult, container string, d policy.Desired, err error) {
	r.Errors = append(r.Errors, decisionErrors(d, err)...)
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

func decisionErrors(d policy.Desired, err error) []string {
	var out []string
	for _, e := range d.Errors {
		out = append(out, e.Error())
	}
	if err != nil && len(out) == 0 {
		out = append(out, err.Error())
	}
	return out
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
	if c.weights.kernel == blkio.No {
		r.Errors = append(r.Errors, policy.NoIOWeight(d).Error())
		return
	}
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

// containerSpec returns the container with the index that volumes.containers
// gives it.
func containerSpec(spec *corev1.PodSpec, i int) *corev1.Container {
	if i < len(spec.InitContainers) {
		return &spec.InitContainers[i]
	}
	return &spec.Containers[i-len(spec.InitContainers)]
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// memoryLimit returns the memory limit in bytes; r may be nil.
func memoryLimit(r *corev1.ResourceRequirements) uint64 {
	if r == nil || r.Limits.Memory().IsZero() {
		return policy.NoMemory
	}
	return uint64(max(r.Limits.Memory().Value(), 0))
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
