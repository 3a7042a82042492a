package node

import (
	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file lists the weights that pods ask for, for package weights.

// Weighted returns the demand of pods for weights. Containers in observe mode have none; weights that were
// cleared are listed apart.
func (n *Node) Weighted() weights.Demand {
	out := weights.Demand{Complete: true, Budgets: map[string]policy.WeightBudget{}}
	pol := n.Policy()
	if !pol.Enforces() {
		return out
	}
	if !n.isListed.Load() {
		out.Complete, out.Unknown, out.Unlisted = false, "the runtime has not listed what runs", true
	}
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, g := range s.groups {
		if s.concerns(g) {
			g.addWeighted(&out)
		}
		if pol.BoundsWeights() {
			g.bound(pol, &out)
		}
	}
	return out
}

// bound adds the budget of weights for the namespace of the group. Bystanders have one as well.
func (g *group) bound(pol *policy.Policy, out *weights.Demand) {
	for _, pod := range g.pods { // all are in the same namespace
		if b := pod.request.now.Load().Under(pol).WeightBudget(); g.cgroup != "" && b != (policy.WeightBudget{}) {
			out.Budgets[g.cgroup] = b
		}
	}
}

// addWeighted adds the demand of the group, unless none of its containers runs.
func (g *group) addWeighted(out *weights.Demand) {
	var running *pod
	for _, pod := range g.pods {
		for _, c := range pod.containers {
			if !c.mayRun() {
				continue
			}
			running = pod
			switch pol := c.decision.policy; {
			case pol == nil:
				out.Complete = false
				if out.Unknown == "" {
					out.Unknown = "the limits of container " + pod.String() + " " + c.name + " are not decided yet"
				}
			case pol.Mode() == policy.ModeObserve:
				continue
			}
			d := &c.decision.desired
			if g.recorded.cleared[c.cgroup] {
				out.Cleared = append(out.Cleared, d.Weighted...)
			} else if _, forAll := d.Settings.Weight(); forAll || len(d.Weighted) > 0 {
				out.Weighted = append(out.Weighted, weights.Weighted{
					Namespace: pod.namespace, Pod: pod.name, Container: c.name, Cgroup: c.cgroup,
					Disks: d.Weighted, NoDisk: c.noDisk(), Weights: d.Settings.IOWeight(),
				})
			}
		}
	}
	switch {
	case running == nil || len(g.recorded.weights) == 0:
	case g.recorded.cleared[g.cgroup]:
		out.Cleared = append(out.Cleared, g.recorded.granted.Weighted...)
	default:
		out.Weighted = append(out.Weighted, weights.Weighted{
			Namespace: running.namespace, Pod: running.name, Cgroup: g.cgroup,
			Disks: g.recorded.granted.Weighted, NoDisk: ifNone(g.recorded.granted.Weighted, "no container of the pod uses a local disk"), Weights: g.recorded.weights.IOWeight(),
		})
	}
}

// ifNone returns a reason if there are no disks, and otherwise "".
func ifNone(disks []blkio.Disk, reason string) string {
	if len(disks) > 0 {
		return ""
	}
	return reason
}

// noDisk returns the reason why the container's weight applies to no disk, "" if it applies to one.
func (c *container) noDisk() string {
	reason := "it uses no local disk"
	if layer := c.disks.Facts.Rootfs.Reason; layer != "" {
		reason += "; its writable layer: " + layer
	}
	return ifNone(c.decision.desired.Weighted, reason)
}

// WeightsChanged wakes the reconciler for a pass over all pods after io.cost or bfq was enabled or disabled on a disk.
// A weight on a single disk can be written only while io.cost is enabled there. The value of a disk with bfq is true.
func (n *Node) WeightsChanged(byBFQ map[blkio.Dev]bool) {
	n.controls.SetBFQ(byBFQ)
	n.dropPlans() // the warning of a weight appears or disappears
	n.all.send()
}
