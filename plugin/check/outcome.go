package check

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/budget"
	"github.com/nri-blkio/nri-blkio/policy/grant"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// outcome follows a pod's containers in the order in which the kubelet creates them. It holds which of them the
// node's policy lets start, and the limits that they and the pod get. Each decision and each plan is the same
// as in run.
type outcome struct {
	*Checker
	result *Result
	// isPartial is true if the manifest does not have all of the pod.
	isPartial bool
	controls  plan.Controls
	pod       plan.Pod         // Seen are the containers that came so far
	running   []plan.Container // those that run together once the init containers have ended
	bound     policy.Settings  // the limits of the pod as a whole, with the containers that were accepted so far
}

// container decides for one more container of the pod, as the plugin does at its creation.
func (o *outcome) container(c policy.Container, role manifest.Role) {
	seen := append(slices.Clone(o.pod.Seen), c)
	decided := grant.Decide(&grant.Pod{Policy: o.pod.Policy, Others: o.pod.Seen, Containers: []grant.Container{{Facts: c}}, Missing: o.controls.Missing})
	total, desired := &decided.Total, decided.Containers[0].Desired
	err := o.withoutMissing(&desired, decided.Containers[0].Own)
	decided.TotalErr = o.withoutMissing(total, decided.TotalErr)
	first := o.pod.Policy.First(err, decided.TotalErr)
	if budgetErr := o.checkBudget(&desired, total.Settings); budgetErr != nil && !o.pod.Policy.Refuses(first) {
		o.exceeds(c.Name, budgetErr)
		first = o.pod.Policy.First(first, budgetErr)
	}
	if o.pod.Policy.Action(first) == policy.Reject {
		o.noteErrors("container "+c.Name+" is not created", "container "+c.Name+" would not be created in mode enforce")
	} else if err != nil {
		const starts = " starts without what its errors name, as onError of the node's policy has it"
		o.noteErrors("container "+c.Name+starts, "in mode enforce, container "+c.Name+starts)
	}
	o.result.fail(desired, err)
	o.pod.Seen = seen
	if o.pod.Policy.Refuses(first) {
		seen[len(seen)-1].Stage = policy.Rejected
		o.result.fail(*total, decided.TotalErr)
		return
	}
	o.bound = total.Settings
	created := plan.Container{ID: c.Name, Name: c.Name, Cgroup: c.Name, Desired: desired, Err: first}
	alone := plan.New(plan.View{Pod: o.pod, Running: []plan.Container{created}, Controls: o.controls})
	rec := alone.Containers[0].Record
	rec.Settings = desired.Settings // with memory.high, which only the creation sets
	o.add(o.result, &rec)
	o.noteLimits(&rec)
	if role == manifest.Main || role == manifest.Sidecar {
		o.running = append(o.running, created)
	}
}

func (o *outcome) total() {
	o.pod.Seen = policy.UnlessAllRejected(o.pod.Seen)
	total, err := grant.Total(o.pod.Policy, o.pod.Seen, nil, o.controls.Missing)
	err = o.withoutMissing(&total, err)
	o.result.fail(total, err)
	if err != nil && o.pod.Policy.Action(err) == policy.Ignore {
		const starts = "the pod starts without what the errors of pod-total name, as onError of the node's policy has it"
		o.noteErrors(starts, "in mode enforce, "+starts)
	}
	o.pod.Cgroup = "pod"
	whole := plan.New(plan.View{Pod: o.pod, Running: o.running, Controls: o.controls})
	rec := whole.Pod.Record
	rec.Settings = rec.Settings.Join(whole.Pod.Weights) // those on single disks are not recorded
	rec.Disks = policy.DiskNames(rec.Settings, rec.Disks, total.Disks)
	o.add(o.result, &rec)
	o.noteLimits(&rec)
	o.noteBudget(total.Settings)
	o.noteWeightBudget(&total)
	o.weigh(&total)
	if o.pod.Policy.Mode() == policy.ModeObserve && len(o.result.Writes) > 0 {
		effect := "nothing is written: the node's policy has mode observe"
		if rule := o.pod.Policy.Rule(); rule != "" {
			effect += " for this pod (rule " + rule + ")"
		}
		o.result.Effects = append(o.result.Effects, effect)
	}
}

// noteErrors adds an effect of errors, in the words for the policy's mode.
func (o *outcome) noteErrors(enforced, observed string) {
	if o.pod.Policy.Mode() == policy.ModeObserve {
		enforced = observed
	}
	o.result.Effects = append(o.result.Effects, enforced)
}

// unknown returns the facts that also decide about the pod and that only a node can know.
func (o *outcome) unknown(m *manifest.Pod) []string {
	var out, disks []string
	hasWeight, isBounded := false, false
	for i := range o.result.Writes {
		w := &o.result.Writes[i]
		hasWeight = hasWeight || w.File == "io.weight"
		if w.File == "io.max" && !slices.Contains(disks, w.Disk) {
			disks = append(disks, w.Disk)
		}
	}
	for i := range m.Containers {
		isBounded = isBounded || m.Containers[i].MemoryLimit != 0 || m.MemoryLimit != 0
	}
	if len(disks) > 0 {
		out = append(out, "which disks these are, and whether they can be limited: "+strings.Join(disks, ", "))
	}
	if len(disks) > 1 {
		out = append(out, "whether some of these are one disk, on which entries can contradict one another")
	}
	if slices.ContainsFunc(m.Volumes, func(v manifest.Volume) bool { return v.Source == manifest.HostPath }) {
		out = append(out, "what is mounted below the paths of hostPath volumes")
	}
	if isBounded && len(disks) > 0 {
		out = append(out, "whether the memory limits are at most half of the node's memory, so that they bound dirty pages")
	}
	if hasWeight {
		out = append(out, "whether the kernel has io.weight, and the disks can have io.cost")
	}
	return out
}

// share returns what the containers that run are granted of the budget for the pod's namespace, with these limits of the pod as a whole.
func (o *outcome) share(total policy.Settings) (out budget.Share) {
	b := o.pod.Policy.Budget()
	for i := range o.running {
		out.AddContainer(&o.running[i].Desired, b)
	}
	for _, s := range total {
		if b.Has(s.Key) {
			out.Bind(s.Address, s.Amount)
		}
	}
	return out
}

// checkBudget returns an error if the budget has no room for one more container of the pod, although no other pod takes any of it.
func (o *outcome) checkBudget(d *policy.Desired, total policy.Settings) error {
	own := o.share(o.bound)
	claim := budget.Claim{Pod: o.pod.Policy, Desired: d, Total: total, Own: &own, Others: func(blkio.Address) budget.Granted { return budget.Granted{} }}
	if err := claim.Check(); err != nil { // not returned as it is: a nil pointer is an error
		return err
	}
	return nil
}

func (o *outcome) exceeds(container string, err error) {
	o.result.fail(policy.Desired{}, err)
	if o.pod.Policy.Action(err) == policy.Ignore {
		starts := "container " + container + " starts although it exceeds the budget, as onError of the node's policy has it"
		o.noteErrors(starts, "in mode enforce, "+starts)
	}
}

// noteBudget adds notes on what the pod takes of the budget for its namespace.
func (o *outcome) noteBudget(total policy.Settings) {
	b := o.pod.Policy.Budget()
	if b == nil {
		return
	}
	own := o.share(total)
	for _, p := range own.Portions() {
		if most := b.Limits[p.Key]; p.Sum != 0 && p.Granted <= most {
			o.result.Notes = append(o.result.Notes, fmt.Sprintf("%s on %s counts for the budget of namespace %s: %s for all of its pods on the node",
				valueText(p.Key, p.Granted), p.Name, o.pod.Namespace, annotation.FormatAmount(p.Key, most)))
		}
	}
}

// noteLimits adds notes on the effect of the limits of one cgroup. It leaves the backstop out, which follows from the limits of the containers.
func (o *outcome) noteLimits(rec *record.Record) {
	requested := rec.Settings.Where(func(s policy.Setting) bool {
		return s.Key.IsRate() && s.Amount != blkio.Max && s.Source.Kind != policy.FromBackstop
	})
	notes := &o.result.Notes
	limits := requested.DevLimits()
	for _, dev := range slices.SortedFunc(maps.Keys(limits), blkio.Dev.Compare) {
		for _, keys := range [][2]blkio.Key{{blkio.Rbps, blkio.Riops}, {blkio.Wbps, blkio.Wiops}} {
			if text := operationsText(keys, limits[dev]); text != "" {
				*notes = append(*notes, text)
			}
		}
	}
	for _, s := range requested {
		if above := s.Burst.Rate - s.Amount; !s.Burst.IsZero() {
			*notes = append(*notes, fmt.Sprintf("%s%s on %s: %s above the limit in a whole burst, after %.0f seconds without use",
				s.Key, annotation.BurstSuffix, rec.Disks[s.Dev], annotation.FormatAmount(s.Key, above*blkio.Amount(s.Burst.Seconds)), float64(above)*float64(s.Burst.Seconds)/float64(s.Amount)))
		}
	}
}

func valueText(k blkio.Key, amount blkio.Amount) string {
	return k.String() + "=" + annotation.FormatAmount(k, amount)
}

// operationsText returns the operations per second that limits of one direction allow, for common block sizes.
// It is "" without a limit of bytes.
func operationsText(keys [2]blkio.Key, limits blkio.Limits) string {
	bps, iops := limits[keys[0]], limits[keys[1]]
	if bps == blkio.Unset {
		return ""
	}
	name := valueText(keys[0], bps)
	if iops != blkio.Unset {
		name += " " + valueText(keys[1], iops)
	}
	var parts []string
	for _, block := range []struct {
		size float64
		name string
	}{{4 << 10, "4K"}, {16 << 10, "16K"}, {64 << 10, "64K"}, {1 << 20, "1M"}} {
		rate := float64(bps) / block.size
		if iops != blkio.Unset {
			rate = min(rate, float64(iops))
		}
		parts = append(parts, operations(rate)+" of "+block.name)
	}
	parts[0] = strings.Replace(parts[0], " of ", " operations/s of ", 1)
	return name + " is " + strings.Join(parts[:len(parts)-1], ", ") + " or " + parts[len(parts)-1]
}

// operations formats a rate: whole from 10 on, with two digits below.
func operations(rate float64) string {
	if rate >= 10 {
		return strconv.FormatFloat(rate, 'f', 0, 64)
	}
	return strconv.FormatFloat(rate, 'g', 2, 64)
}

// A partial pod is one of an object that is not Kubernetes' own. The object's controller adds containers and mounts that the manifest
// does not have. So a container or a mount that is not in it is unknown, and no error.

// partial adds the errors of a partial pod that depend on no container. It returns true if the manifest has no containers.
func (r *Result) partial(m *manifest.Pod, pol *policy.Pod) bool {
	for _, err := range pol.Check() {
		r.Errors = append(r.Errors, r.positioned(err))
	}
	if len(m.Containers) > 0 {
		return false
	}
	r.Unknown = append(r.Unknown, fmt.Sprintf("the containers, mounts and labels of the pods: %s is read as annotations of a pod, and whether %s copies it to pods is unknown",
		quote.ASCII(r.Template), r.controller()))
	r.tidy()
	return true
}

// controller names the program that completes a partial pod.
func (r *Result) controller() string {
	if r.Kind == "" {
		return "the chart"
	}
	return "the controller of the " + quote.Name(r.Kind, maxKind)
}

// maxKind bounds the name of a kind in a sentence.
const maxKind = 64

// withoutMissing takes those errors out of a decision about a partial pod that a mount causes that the manifest does not have. It
// returns the first error that is left.
func (o *outcome) withoutMissing(d *policy.Desired, err error) error {
	if !o.isPartial {
		return err
	}
	var kept []error
	d.Errors = slices.DeleteFunc(slices.Clone(d.Errors), func(e *annotation.Error) bool {
		if e.Reason == annotation.NoMount {
			o.result.missing(e)
			return true
		}
		kept = append(kept, e)
		return false
	})
	if e := (*annotation.Error)(nil); errors.As(err, &e) && e.Reason == annotation.NoMount {
		return o.pod.Policy.First(kept...)
	}
	return err
}

// missing adds the unknown of an entry whose target is not in the manifest.
func (r *Result) missing(e *annotation.Error) {
	at := r.Position
	at.Line = r.lines[e.From.Annotation]
	line := fmt.Sprintf("%s: %s: entry %d %s: whether %s adds what the entry names",
		at, quote.Name(e.From.Annotation, quote.Most), e.Entry, quote.Text(e.Text), r.controller())
	if !slices.Contains(r.Unknown, line) {
		r.Unknown = append(r.Unknown, line)
	}
}

// unknownContainer reports a container that an annotation names and that the manifest does not have.
func (r *Result) unknownContainer(m *manifest.Pod, req *annotation.Request, name string) {
	if m.IsPartial {
		r.Unknown = append(r.Unknown, fmt.Sprintf("whether %s adds the container %q", r.controller(), name))
		return
	}
	has := "no container"
	if len(m.Containers) > 0 {
		var names []string
		for i := range m.Containers {
			names = append(names, m.Containers[i].Name)
		}
		has = strings.Join(names, ", ")
	}
	text := fmt.Sprintf("unknown container %q in the annotations (the pod has %s)", name, has)
	for _, key := range req.Keys() {
		if _, scope := annotation.CutKey(key); scope == "container."+name && r.lines[key] != 0 {
			at := r.Position
			at.Line = r.lines[key]
			text = at.String() + ": " + key + ": " + text
			break
		}
	}
	r.Errors = append(r.Errors, text)
}
