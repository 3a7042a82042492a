package node

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/podmetrics"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file lists the pods whose I/O has metrics, for package podmetrics.

// Measured returns the running pods with limits or weights. It reads nothing of the node, and holds the lock of the
// state for one pod at a time.
func (n *Node) Measured() (out []podmetrics.Pod) {
	for _, g := range n.concerned() {
		if p := n.measured(g); len(p.Disks) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// concerned returns the groups without those of bystanders.
func (n *Node) concerned() (out []groupIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, g := range s.groups {
		if s.concerns(g) {
			out = append(out, g.identity())
		}
	}
	return out
}

// measured returns a pod with the disks on which it has a limit or a weight. Limits that are only observed, or were
// cleared, are left out.
func (n *Node) measured(of groupIdentity) (out podmetrics.Pod) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g, names := of.in(s), map[blkio.Dev]string{}
	if g.shared() || g.cgroup == "" {
		return out
	}
	add := func(d policy.Desired, weights policy.Settings, cgroup string, isWritten bool) policy.Desired {
		for _, disk := range d.Weighted {
			if len(weights) > 0 {
				names[disk.Dev] = disk.Name
			}
		}
		limits := valuesOf(d.Settings)
		for _, l := range limits {
			names[l.Dev] = cmp.Or(d.Disks[l.Dev], l.Dev.String())
		}
		if !isWritten || g.recorded.cleared[cgroup] {
			return policy.Desired{}
		}
		if len(limits) > 0 && cgroup != "" {
			out.Parts = append(out.Parts, podmetrics.Part{Cgroup: cgroup, Limits: limits})
		}
		return d
	}
	var granted []policy.Desired
	for _, pod := range g.pods {
		for _, c := range pod.containers {
			if c.mayRun() {
				d, pol := c.inForce(), c.decision.policy
				granted = append(granted, add(d, d.Settings.In(blkio.IOWeight), c.cgroup, pol != nil && pol.Mode() != policy.ModeObserve))
				out.Namespace, out.Name, out.Cgroup = pod.namespace, pod.name, g.cgroup
			}
		}
	}
	if len(granted) == 0 {
		return out
	}
	total := add(*g.recorded.granted, g.recorded.weights, g.cgroup, true)
	out.Limits = valuesOf(total.Settings.Lowest(policy.Backstop(granted)))
	for _, dev := range slices.SortedFunc(maps.Keys(names), blkio.Dev.Compare) {
		out.Disks = append(out.Disks, blkio.Disk{Dev: dev, Name: names[dev]})
	}
	return out
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
