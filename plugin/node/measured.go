package node

import (
	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/podmetrics"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file lists the pods whose I/O has metrics, for package podmetrics.

// Measured returns the running pods, bystanders as well. It reads nothing of the node, and holds the lock of the
// state for one pod at a time.
func (n *Node) Measured() (out []podmetrics.Pod) {
	for _, g := range n.groups() {
		if p := n.measured(g); p.Cgroup != "" {
			out = append(out, p)
		}
	}
	return out
}

// groups returns all groups.
func (n *Node) groups() (out []groupIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, g := range s.groups {
		out = append(out, g.identity())
	}
	return out
}

// measured returns a pod with its limits, without those that are only observed, or were cleared. It has no cgroup if the pod does not
// run.
func (n *Node) measured(of groupIdentity) (out podmetrics.Pod) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	if g.shared() {
		return out
	}
	add := func(d policy.Desired, cgroup string) policy.Desired {
		if g.recorded.cleared[cgroup] {
			return policy.Desired{}
		}
		if limits := valuesOf(d.Settings); len(limits) > 0 && cgroup != "" {
			out.Parts = append(out.Parts, podmetrics.Part{Cgroup: cgroup, Limits: limits})
		}
		return d
	}
	var granted []policy.Desired
	for _, pod := range g.pods {
		for _, c := range pod.containers {
			if !c.mayRun() {
				continue
			}
			d := policy.Desired{}
			if pol := c.decision.policy; pol != nil && pol.Mode() != policy.ModeObserve {
				d = c.inForce()
			}
			granted = append(granted, add(d, c.cgroup))
			out.Namespace, out.Name, out.Cgroup = pod.namespace, pod.name, g.cgroup
		}
	}
	if len(granted) > 0 {
		total := add(*g.recorded.granted, g.cgroup)
		out.Limits = valuesOf(total.Settings.Lowest(policy.Backstop(granted)))
	}
	return out
}

// diskName returns the kernel's name of a disk, or its number if it was removed.
func (n *Node) diskName(dev blkio.Dev) string {
	for _, d := range n.storage.Device(dev).Disks {
		return d.Name
	}
	return dev.String()
}

// valuesOf returns the limits other than max.
func valuesOf(s policy.Settings) (out []blkio.Value) {
	for _, x := range s {
		if x.Key.IsRate() && x.Amount != blkio.Max {
			out = append(out, x.Value)
		}
	}
	return out
}
