// Package grant decides what the containers of a pod are granted: each by itself, with what was granted before, and the pod as a
// whole. It is pure. The plugin calls it for each creation, start, edit, reload and changed disk, and check for a manifest.
package grant

import (
	"cmp"
	"slices"

	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Pod has what the decision for a pod depends on.
type Pod struct {
	Policy     *policy.Pod
	Containers []Container
	// Others are the other containers that were created so far. A mount of theirs can have brought a limit of the pod as a whole.
	Others []policy.Container
	// Before is what the pod as a whole was granted before; nil for nothing.
	Before *policy.Desired
	// NoTotal is why the pod as a whole cannot have limits, "" if it can.
	NoTotal string
	// Missing are the control files that the node's kernel does not have, such as io.weight.
	Missing []string
}

// Container is one container to decide.
type Container struct {
	Facts policy.Container
	// TooManyMounts is true if some of its mounts are not in Facts, because there was no room for them.
	TooManyMounts bool
	// Before is what it was granted before; nil for nothing, and for a container that is only observed.
	Before *policy.Desired
}

// Decision is what the containers of a pod are granted, in the order of Pod.Containers, and the limits of the pod as a whole.
type Decision struct {
	Containers []Decided
	Total      policy.Desired
	// TotalErr is why a part of pod-total is not granted, and nil if all of it is.
	TotalErr error
}

// Decided is what one container is granted.
type Decided struct {
	Desired policy.Desired
	// Own is why a part of the request for this container is not granted, and Err is that or why a part of pod-total is not: the
	// first error that the policy rejects or, if it rejects none, the first of all. Each is an *annotation.Error.
	Own, Err error
}

// Decide decides all containers of a pod.
func Decide(p *Pod) Decision {
	out := Decision{Containers: make([]Decided, len(p.Containers))}
	out.Total, out.TotalErr = p.total()
	for i := range p.Containers {
		d := &out.Containers[i]
		d.Desired, d.Own = p.Policy.Container(p.Containers[i].Facts, p.Missing...)
		p.Policy.Carry(&d.Desired, p.Containers[i].Before, p.Containers[i].Facts.Name)
		d.Err = p.Policy.First(d.Own, out.TotalErr)
		d.Err = p.Policy.First(p.tooManyMounts(&p.Containers[i], d, out.Total.Settings), d.Err)
	}
	return out
}

// Total decides the limits of a pod as a whole, from the disks of all containers that were created. before and missing are as in Pod.
func Total(pol *policy.Pod, all []policy.Container, before *policy.Desired, missing []string) (policy.Desired, error) {
	d, err := pol.Total(all, missing...)
	pol.Carry(&d, before, "")
	return d, err
}

func (p *Pod) total() (policy.Desired, error) {
	var facts []policy.Container
	if p.Policy.AsksTotal() {
		facts = slices.Grow(slices.Clip(p.Others), len(p.Containers))
		for i := range p.Containers {
			facts = append(facts, p.Containers[i].Facts)
		}
	}
	total, err := Total(p.Policy, facts, p.Before, p.Missing)
	if len(total.Settings) == 0 || p.NoTotal == "" {
		return total, err
	}
	total.Settings = nil
	of := annotation.Identity{From: annotation.Origin{Annotation: keyOfTotal}, Reason: annotation.NoPodCgroup}
	return total, cmp.Or(err, error(annotation.New(of, &annotation.Problem{Cause: p.NoTotal, Hint: "limit its containers instead"})))
}

// keyOfTotal is the annotation that limits a pod as a whole.
const keyOfTotal = annotation.KindLimits + "." + annotation.Domain + "/" + annotation.ScopeTotal

// tooManyMounts returns the error that rejects a container with more mounts than are known, if it has a limit or a weight, or lacks
// one that it needs: by the mounts that are not known it would evade that.
func (p *Pod) tooManyMounts(c *Container, d *Decided, total policy.Settings) error {
	isLimited := len(d.Desired.Settings) > 0 || len(total) > 0 || d.Err != nil || p.Policy.HasClaimLimits()
	if !isLimited || !c.TooManyMounts {
		return nil
	}
	return p.Policy.Refusal(annotation.TooManyMounts, &annotation.Problem{Cause: "the pod has too many mounts", Hint: "about 4,000 fit: use fewer volumeMounts"})
}
