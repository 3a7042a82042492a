package check

import (
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// outcome follows a pod's containers in the order in which the kubelet creates them: which of
// them the node's policy lets start, and what they and the pod get then.
type outcome struct {
	*Checker
	result  *Result
	request *annotation.Request
	runtime error // why no container can be limited under the pod's handler, or nil

	refused bool // a container is
	started []policy.Container
	granted []policy.Desired // of the containers that run together once the init containers have ended
}

// container decides for one more container of the pod, as the plugin does at its creation.
func (o *outcome) container(c policy.Container, role manifest.Role) {
	d, err := o.decide(o.Policy.Container(o.request, c))
	total, podErr := o.total(append(slices.Clone(o.started), c))
	for _, e := range []error{err, podErr} {
		if o.Policy.Action(e) == policy.Reject {
			o.say("container "+c.Name+" is not created", "container "+c.Name+" would not be created in mode enforce")
			if o.Policy.Mode == policy.ModeEnforce {
				o.refused = true
				o.add(o.result, c.Name, policy.Desired{Errors: d.Errors}, err)
				o.result.Errors = append(o.result.Errors, o.result.decisionErrors(total, podErr)...)
				return
			}
			break
		}
	}
	if err != nil && o.Policy.Action(err) == policy.Ignore {
		const starts = " starts without what its errors name, as onError of the node's policy has it"
		o.say("container "+c.Name+starts, "in mode enforce, container "+c.Name+starts)
	}
	o.add(o.result, c.Name, d, err)
	o.started = append(o.started, c)
	if role == manifest.Main || role == manifest.Sidecar {
		o.granted = append(o.granted, d)
	}
}

// decide adds to a decision of the policy what the node cannot do.
func (o *outcome) decide(d policy.Desired, err error) (policy.Desired, error) {
	if o.runtime != nil {
		return policy.Desired{}, o.runtime
	}
	if o.Node.Weights.Kernel != blkio.No {
		return d, err
	}
	if noWeight := d.DropWeight(); noWeight != nil {
		d.Errors = append(d.Errors, noWeight)
		if err == nil {
			err = noWeight
		}
	}
	return d, err
}

func (o *outcome) total(containers []policy.Container) (policy.Desired, error) {
	return o.decide(o.Policy.PodTotal(o.request, containers))
}

// pod decides for the pod's own cgroup while all containers run that start.
func (o *outcome) pod() {
	total, err := o.total(o.started)
	if o.refused { // targets that a refused container has are not skipped
		total.Skipped, total.SkippedMore = nil, 0
	}
	o.add(o.result, "", total, err)
	if o.Policy.Writeback.Backstop {
		o.addBackstop(o.result, total, o.granted)
	}
	if o.Policy.Mode == policy.ModeObserve && len(o.result.Writes) > 0 {
		o.result.Effects = append(o.result.Effects, "nothing is written: the node's policy has mode observe")
	}
}

// say adds an effect of errors, in the words for the policy's mode.
func (o *outcome) say(enforced, observed string) {
	if o.Policy.Mode == policy.ModeObserve {
		enforced = observed
	}
	o.result.Effects = append(o.result.Effects, enforced)
}

// unknown returns what decides about the pod as well and only a node can know.
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
		out = append(out, "whether the kernel has io.weight, and a disk has io.cost.qos enabled")
	}
	return out
}
