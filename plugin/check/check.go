// Package check decides for the pods of manifests what the plugin would decide for their
// containers. It computes values: what is known of a node is given to it, and it builds on
// systems without cgroups.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Checker decides for manifests what the plugin would decide for containers.
type Checker struct {
	Policy  *policy.Policy
	Handler string // the runtime handler of all pods; "": that of a pod's RuntimeClass has its name
	Node    Node
}

// Node is what is known of a node. The zero value is a node of which nothing is known.
type Node struct {
	Storage     Storage // nil if it is unknown
	KubeletRoot string
	// Rootfs returns what the writable layers of a handler's containers are stored on; it is
	// nil if that is unknown.
	Rootfs  func(ctx context.Context, handler string) blkio.Backing
	Weights Weights
	Memory  uint64 // in bytes, 0 if unknown
}

// Storage finds what a path of the node is stored on; a *storage.Storage.
type Storage interface {
	Resolve(ctx context.Context, hostPath string) blkio.Backing
	Submounts(ctx context.Context, hostPath string) iter.Seq2[string, blkio.Backing]
}

// Result is what check reports of one pod.
type Result struct {
	manifest.Object
	Position manifest.Position `json:"position"` // of the pod, or of the pod template
	Writes   []Write           `json:"writes"`
	Errors   []string          `json:"errors,omitempty"`
	Effects  []string          `json:"effects,omitempty"` // what the node's policy makes of the errors
	Warnings []string          `json:"warnings,omitempty"`
	Skipped  []string          `json:"skipped,omitempty"`
	Unknown  []string          `json:"unknown,omitempty"` // what decides as well, and only a node can know

	lines map[string]int // of the annotations
}

// Write is one line for one file of one cgroup.
type Write struct {
	Container string          `json:"container,omitempty"` // "": the pod's own cgroup
	Disk      string          `json:"disk,omitempty"`
	Dev       string          `json:"dev,omitempty"` // "" where it is not known yet
	File      string          `json:"file"`
	Line      string          `json:"line"`
	Sources   []policy.Source `json:"sources"`
}

// Pod decides for one pod.
func (c *Checker) Pod(ctx context.Context, m *manifest.Pod) Result {
	r := Result{
		Object: m.Object, Position: m.Position,
		Writes: []Write{}, lines: m.Lines,
	}
	req := annotation.Parse(m.Annotations)
	if req.Empty() {
		return r
	}
	vols := volumes{
		storage: c.Node.Storage, kubeletRoot: c.Node.KubeletRoot, targets: req.Paths(),
	}
	vols.rootfs = vols.unknown("disk of the writable layers")
	if c.Node.Rootfs != nil {
		vols.rootfs = c.Node.Rootfs(ctx, c.handlerOf(m))
	}
	containers := vols.containers(ctx, m)
	for i := range containers {
		bytes := min(orNoMemory(m.Containers[i].MemoryLimit), orNoMemory(m.MemoryLimit))
		containers[i].MemoryLimited = policy.MemoryBoundsDirty(bytes, c.Node.Memory)
	}
	c.checkNames(&r, req, containers)
	o := outcome{Checker: c, result: &r, request: req, runtime: c.checkRuntime(&r, req, m)}
	for i := range containers {
		o.container(containers[i], m.Containers[i].Role)
	}
	o.pod()
	if c.Node.Storage == nil {
		o.result.Unknown = o.unknown(m)
	}
	r.tidy()
	return r
}

// checkNames finds what a plugin cannot know while a pod's containers come one
// by one: a name that never comes is an error here, a path a warning.
func (c *Checker) checkNames(r *Result, req *annotation.Request, containers []policy.Container) {
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
	for _, w := range policy.Unmatched(req, all) {
		// A manifest has all that will come.
		r.Warnings = append(r.Warnings, strings.TrimSuffix(w, " yet"))
	}
}

// checkRuntime returns why no container of the pod can be limited under its runtime handler.
func (c *Checker) checkRuntime(r *Result, req *annotation.Request, m *manifest.Pod) error {
	if m.RuntimeClass != "" && c.Handler == "" {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the handler of RuntimeClass %q is unknown (set --handler to check it)", m.RuntimeClass))
		return nil
	}
	return c.Policy.CheckRuntime(req, c.Handler)
}

// handlerOf is the handler whose writable layers the pod's containers have. A
// RuntimeClass mostly has its handler's name; where it has not, and --handler
// is not given, the layers are those of handlers that configure none.
func (c *Checker) handlerOf(m *manifest.Pod) string { return cmp.Or(c.Handler, m.RuntimeClass) }

// add takes the decision for one cgroup into the result.
func (c *Checker) add(r *Result, container string, d policy.Desired, err error) {
	r.Errors = append(r.Errors, r.decisionErrors(d, err)...)
	c.addWrites(r, container, d)
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
func (r *Result) decisionErrors(d policy.Desired, err error) []string {
	var out []string
	for _, e := range d.Errors {
		out = append(out, r.positioned(e))
	}
	if err != nil && len(out) == 0 {
		out = append(out, r.positioned(err))
	}
	return out
}

func (r *Result) positioned(err error) string {
	var e *annotation.Error
	if !errors.As(err, &e) || r.lines[e.Annotation] == 0 {
		return err.Error()
	}
	at := r.Position
	at.Line = r.lines[e.Annotation]
	return at.String() + ": " + err.Error()
}

// addWrites adds a line for each file and device.
func (c *Checker) addWrites(r *Result, container string, d policy.Desired) {
	for _, l := range d.Settings.Lines() {
		w := Write{Container: container, File: l.File, Line: l.Text}
		for _, s := range d.Settings {
			if s.File() == l.File && s.Dev == l.Dev && !slices.Contains(w.Sources, s.Source) {
				w.Sources = append(w.Sources, s.Source)
			}
		}
		switch l.File {
		case blkio.IOMax:
			w.Disk, w.Dev = d.Disks[l.Dev], l.Dev.String()
			if l.Dev.IsUnknown() {
				w.Dev, w.Line = "", strings.Replace(l.Text, l.Dev.String(), "MAJ:MIN", 1)
			}
		case blkio.IOWeight:
			weight, _ := d.Settings.Weight()
			w.Line = weight.Amount.String()
			if warning := c.Node.Weights.warning(); warning != "" {
				r.Warnings = append(r.Warnings, warning)
			}
		default:
			continue // memory.high, which a warning names
		}
		r.Writes = append(r.Writes, w)
	}
}

// addBackstop adds what the pod's cgroup gets beyond its total while all of the
// pod's lasting containers run.
func (c *Checker) addBackstop(r *Result, total policy.Desired, granted []policy.Desired) {
	var all []policy.Settings
	var names []map[blkio.Dev]string
	for _, d := range granted {
		all, names = append(all, d.Settings), append(names, d.Disks)
	}
	backstop := total.Settings.Lowest(policy.Backstop(all)).Where(func(s policy.Setting) bool { return s.Source.Kind == policy.FromBackstop })
	c.addWrites(r, "", policy.Desired{Settings: backstop, Disks: policy.DiskNames(backstop, names...)})
}

func (r *Result) tidy() {
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

// Weights is what io.weight does on a node.
type Weights struct {
	Kernel blkio.Tri // whether the kernel has it
	IOCost blkio.Tri // whether some disk has io.cost.qos enabled
	BFQ    []string  // disks that bfq schedules
}

// warning says why a weight has no effect on this node, or nothing. The first
// part is what the plugin says.
func (w *Weights) warning() string {
	if w.IOCost != blkio.No {
		return ""
	}
	text := "io.weight has no effect on this node: no disk has io.cost.qos enabled"
	if len(w.BFQ) > 0 {
		text += ", and bfq (" + strings.Join(w.BFQ, ", ") + ") looks at io.bfq.weight alone"
	}
	return text
}

// Cgroup names the cgroup of the line.
func (w *Write) Cgroup() string {
	if w.Container == "" {
		return "pod"
	}
	return "container " + w.Container
}

// From returns where the line's values come from, each source once.
func (w *Write) From() string {
	text := ""
	for _, s := range w.Sources {
		if text != "" {
			text += ", "
		}
		text += s.String()
	}
	return text
}
