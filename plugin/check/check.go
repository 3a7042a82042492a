// Package check makes the decisions of the plugin for the pods of manifests. Its caller
// passes the facts about a node. The package does no I/O of its own, and builds on systems
// without cgroups.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Checker makes the decisions of the plugin for the pods of manifests.
type Checker struct {
	Policy *policy.Policy
	// Handler is the runtime handler of all pods. If it is "", the handler of a pod has the
	// name of the pod's RuntimeClass.
	Handler string
	Node    Node
}

// Node holds the facts about a node. The zero value is an unknown node.
type Node struct {
	Storage     inventory.Storage // nil if it is unknown
	KubeletRoot string
	Layers      inventory.Layers // used with Storage only
	Missing     []string         // the control files that the kernel does not have
	Memory      uint64           // MemTotal in bytes; 0 if it is unknown
	// Disks are the physical disks, nil if they are unknown.
	Disks map[blkio.Dev]Disk
}

// Result is the report about one pod.
type Result struct {
	manifest.Object
	Position manifest.Position `json:"position"` // of the pod, or of the pod template
	// Template is the path of a partial pod in its object, "" for another pod. See [manifest.Pod].
	Template string   `json:"template,omitempty"`
	Writes   []Write  `json:"writes"`
	Errors   []string `json:"errors,omitempty"`
	Effects  []string `json:"effects,omitempty"` // effects of the errors by the node's policy
	Warnings []string `json:"warnings,omitempty"`
	Skipped  []string `json:"skipped,omitempty"`
	Unknown  []string `json:"unknown,omitempty"` // facts that the decision also depends on, and that only a node shows
	Meaning

	lines map[string]int // of the annotations
}

// Meaning describes the effect of a pod's limits and weights on the node, and their sources.
type Meaning struct {
	Rule    string         `json:"rule,omitempty"` // of the policy, that matches the pod
	Weights []WeightEffect `json:"weights,omitempty"`
	Notes   []string       `json:"notes,omitempty"`
}

// Write is one line for one control file of one cgroup.
type Write struct {
	Container string          `json:"container,omitempty"` // "" for the pod's own cgroup
	Disk      string          `json:"disk,omitempty"`
	Dev       string          `json:"dev,omitempty"` // "" if it is unknown
	File      string          `json:"file"`
	Line      string          `json:"line"`
	Limit     string          `json:"limit"` // the values in the words of annotations
	Sources   []policy.Source `json:"sources"`
}

// Pod returns the decisions for one pod. They are empty if the pod has no annotation of the
// plugin, and no class by a rule of the policy.
func (c *Checker) Pod(ctx context.Context, m *manifest.Pod) Result {
	r := Result{
		Object: m.Object, Position: m.Position,
		Writes: []Write{}, lines: m.Lines,
	}
	if m.IsPartial {
		r.Template = m.Template
	}
	asked := c.request(m)
	pol := asked.Under(c.Policy)
	if m.IsPartial && r.partial(m, pol) {
		return r
	}
	r.Warnings = append(r.Warnings, c.namespaceWarnings(asked)...)
	r.Notes = append(r.Notes, c.guarantees(m.Namespace, pol)...)
	if r.Rule = pol.Rule(); pol.IsEmpty() {
		return r
	}
	r.Warnings = append(r.Warnings, c.handlerWarnings(m)...)
	// A RuntimeClass mostly has its handler's name. Otherwise, without --handler, the layers are those of handlers that configure none.
	containers, err := c.Node.find(ctx, cmp.Or(c.Handler, m.RuntimeClass), m, pol.Targets())
	if err != nil {
		r.Errors = append(r.Errors, err.Error())
		return r
	}
	for i := range containers {
		bytes := min(orNoMemory(m.Containers[i].MemoryLimit), orNoMemory(m.MemoryLimit))
		containers[i].MemoryLimited = policy.MemoryBoundsDirty(bytes, c.Node.Memory)
	}
	c.checkNames(&r, m, pol, containers)
	o := outcome{
		Checker: c, isPartial: m.IsPartial, result: &r, controls: plan.Controls{Missing: c.Node.Missing},
		pod: plan.Pod{Namespace: m.Namespace, Name: m.Name, Policy: pol},
	}
	for i := range containers {
		o.container(containers[i], m.Containers[i].Role)
	}
	o.total()
	if c.Node.Storage == nil {
		r.Unknown = append(r.Unknown, o.unknown(m)...)
	}
	if what := needsCluster(m, pol); what != "" {
		r.Unknown = append(r.Unknown, "whether the cluster part runs on the node ("+what+")")
	}
	r.tidy()
	return r
}

// checkNames finds errors that a plugin cannot know while a pod's containers are created one by one. A name
// that no container has is an error here, a path only a warning.
func (c *Checker) checkNames(r *Result, m *manifest.Pod, pol *policy.Pod, containers []policy.Container) {
	req := pol.Request()
	// Unmatched is about names too; stand-ins leave it the paths.
	all := slices.Clone(containers)
	for _, name := range req.ContainerNames() {
		if slices.ContainsFunc(containers, func(c policy.Container) bool { return c.Name == name }) {
			continue
		}
		all = append(all, policy.Container{Name: name})
		r.unknownContainer(m, req, name)
	}
	missing := pol.Unmatched(all) // a manifest has all that will come, unless it is partial
	if !m.IsPartial {
		r.Warnings = append(r.Warnings, missing...)
		return
	}
	for _, line := range missing {
		r.Unknown = append(r.Unknown, line+", unless "+r.controller()+" adds it")
	}
}

// request returns what is requested for a pod, as far as the manifests have it, with the pod's runtime handler. The handler of a
// RuntimeClass is unknown unless it is given: then it is taken for one that the policy knows.
func (c *Checker) request(m *manifest.Pod) *podfacts.Request {
	handler := c.Handler
	if known := c.Policy.HostKernelHandlers; c.hasUnknownHandler(m) && len(known) > 0 {
		handler = known[0]
	}
	facts := podfacts.Facts{
		Namespace: m.Namespace, Name: m.Name, Annotations: m.Annotations, Labels: m.Labels, NamespaceLabels: m.NamespaceLabels,
		Volumes: podVolumes(m),
	}
	return facts.Request(m.QOS, handler).InNamespace(facts.NamespaceLabels, c.Policy.NamespaceKeys())
}

func (c *Checker) hasUnknownHandler(m *manifest.Pod) bool {
	return m.RuntimeClass != "" && c.Handler == ""
}

func (c *Checker) handlerWarnings(m *manifest.Pod) []string {
	if !c.hasUnknownHandler(m) {
		return nil
	}
	return []string{fmt.Sprintf("the handler of RuntimeClass %q is unknown (set --handler to check it)", m.RuntimeClass)}
}

func (c *Checker) namespaceWarnings(asked *podfacts.Request) []string {
	if !c.Policy.LacksNamespaceLabels(&asked.PodFacts) {
		return nil
	}
	return []string{fmt.Sprintf("the labels of namespace %q are unknown, so no rule with namespaceSelector matches (add the Namespace to the manifests)", asked.Namespace)}
}

// fail adds the errors of a decision, each with the line of its annotation.
func (r *Result) fail(d policy.Desired, err error) {
	for _, e := range d.Errors {
		r.Errors = append(r.Errors, r.positioned(e))
	}
	if err != nil { // tidy removes duplicates
		r.Errors = append(r.Errors, r.positioned(err))
	}
}

func (c *Checker) add(r *Result, rec *record.Record) {
	c.addWrites(r, rec)
	prefix := "pod: "
	if rec.Container != "" {
		prefix = "container " + rec.Container + ": "
	}
	for _, w := range rec.Warnings {
		r.Warnings = append(r.Warnings, prefix+w)
	}
	for _, s := range rec.Skipped {
		r.Skipped = append(r.Skipped, prefix+s)
	}
}

func (r *Result) positioned(err error) string {
	var e *annotation.Error
	if !errors.As(err, &e) || r.lines[e.From.Annotation] == 0 {
		return err.Error()
	}
	at := r.Position
	at.Line = r.lines[e.From.Annotation]
	return at.String() + ": " + err.Error()
}

func (c *Checker) addWrites(r *Result, rec *record.Record) {
	for _, l := range rec.Settings.Lines() {
		w := Write{Container: rec.Container, File: l.File, Line: l.Text}
		for _, s := range rec.Settings {
			if s.File() != l.File || s.Dev != l.Dev {
				continue
			}
			w.Limit = strings.TrimSpace(w.Limit + " " + limitText(&s))
			if !slices.Contains(w.Sources, s.Source) {
				w.Sources = append(w.Sources, s.Source)
			}
		}
		switch l.File {
		case blkio.IOMax:
			w.Disk, w.Dev = rec.Disks[l.Dev], l.Dev.String()
			if l.Dev.IsUnknown() {
				w.Dev, w.Line = "", strings.Replace(l.Text, l.Dev.String(), "MAJ:MIN", 1)
			}
		case blkio.IOWeight:
			_, w.Line, _ = strings.Cut(l.Text, " ") // the word before is "default", or the device
			if l.Dev != (blkio.Dev{}) {
				w.Disk, w.Dev = rec.Disks[l.Dev], l.Dev.String()
			}
			if l.Dev.IsUnknown() {
				w.Dev = ""
			}
		}
		r.Writes = append(r.Writes, w)
	}
}

// tidy leaves the first of the lines that are alike.
func (r *Result) tidy() {
	for _, list := range []*[]string{&r.Errors, &r.Warnings, &r.Skipped, &r.Notes} {
		seen := map[string]bool{}
		*list = slices.DeleteFunc(*list, func(line string) bool {
			isAgain := seen[line]
			seen[line] = true
			return isAgain
		})
	}
}

func orNoMemory(limit uint64) uint64 {
	if limit == 0 {
		return policy.NoMemory
	}
	return limit
}

// Cgroup returns "pod", or "container NAME".
func (w *Write) Cgroup() string {
	if w.Container == "" {
		return "pod"
	}
	return "container " + w.Container
}

// IsBackstop reports whether a line has only sums of the limits of the containers.
func (w *Write) IsBackstop() bool {
	return len(w.Sources) > 0 && !slices.ContainsFunc(w.Sources, func(s policy.Source) bool { return s.Kind != policy.FromBackstop })
}

// limitText returns a value in the words of annotations.
func limitText(s *policy.Setting) string {
	if s.Key < blkio.NumLimits {
		return annotation.FormatLimit(s.Key, s.Amount, s.Burst)
	}
	if s.File() == blkio.IOWeight {
		return "weight " + s.Amount.String()
	}
	return s.File() + " " + s.Amount.String()
}

// From returns the sources of the line's values, each once.
func (w *Write) From() string {
	var names []string
	for _, s := range w.Sources {
		names = append(names, s.String())
	}
	return strings.Join(names, ", ")
}

// Report is the report about the pods of manifests.
type Report struct {
	Policy   string             `json:"policy"` // PolicySource.Name
	Findings []manifest.Finding `json:"findings"`
	Pods     []Result           `json:"pods"`
	// Claims is the number of claims, templates of claims and VolumeAttributesClasses.
	Claims  int              `json:"claims,omitempty"`
	LeftOut []manifest.Other `json:"leftOut,omitempty"` // objects without any of these
}

// HasErrors reports whether a manifest or a pod has an error.
func (r *Report) HasErrors() bool {
	return manifest.HasErrors(r.Findings) || slices.ContainsFunc(r.Pods, func(p Result) bool { return len(p.Errors) > 0 })
}

// PolicySource describes where the policy of a Checker comes from.
type PolicySource struct {
	Name    string // the path of the file, or BuiltIn, and more about it
	Unknown string // why the node may have another policy; "" if it has this one
}

// BuiltIn is the name of the policy that applies without a file.
const BuiltIn = "built-in"

// String returns one line.
func (s PolicySource) String() string {
	if s.Unknown == "" {
		return s.Name
	}
	return s.Name + ": " + s.Unknown
}

// Report returns the decisions for the pods of manifests. If the node may have another policy, the results of
// the pods that a policy concerns have this as unknown.
func (c *Checker) Report(ctx context.Context, set *manifest.Set, source PolicySource) Report {
	out := Report{
		Policy: source.Name, Findings: append([]manifest.Finding{}, set.Findings...), Pods: make([]Result, 0, len(set.Pods)),
	}
	for i := range set.Pods {
		r := c.guarded(ctx, &set.Pods[i])
		if source.Unknown != "" && len(r.Writes)+len(r.Errors) > 0 {
			r.Unknown = append(r.Unknown, "the node's policy: "+source.Unknown+" (set --policy)")
		}
		out.Pods = append(out.Pods, r)
	}
	out.Findings = append(out.Findings, claimFindings(set)...)
	out.Claims, out.LeftOut = len(set.Claims)+len(set.Classes), set.Others
	return out
}

// guarded is Pod. A fault of this program costs one pod only.
func (c *Checker) guarded(ctx context.Context, m *manifest.Pod) (r Result) {
	defer func() {
		if fault := recover(); fault != nil {
			r = Result{
				Object: m.Object, Position: m.Position, Writes: []Write{},
				Errors: []string{m.Position.String() + ": a fault of this program, please report it: " + quote.ASCII(fmt.Sprint(fault))},
			}
		}
	}()
	return c.Pod(ctx, m)
}
