package node

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/burst"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/node/metrics"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/podmetrics"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// This file has what other packages ask of the state: the pods, their limits with bursts (package burst), their weights (package weights),
// the cgroups whose I/O has metrics (package podmetrics), and the counts for metrics.

// present returns the UIDs of the node's pods, and nil before the runtime has listed them.
func (n *Node) present() map[string]bool {
	if !n.isListed.Load() {
		return nil
	}
	s := n.state.Lock()
	defer n.state.Unlock()
	out := make(map[string]bool, len(s.pods))
	for _, p := range s.pods {
		out[p.uid] = true
	}
	return out
}

// PodsByCgroup returns the pods of the node by the paths of their cgroups, with bystanders.
func (n *Node) PodsByCgroup() map[string]podevent.Pod {
	s := n.state.Lock()
	defer n.state.Unlock()
	out := map[string]podevent.Pod{}
	for _, g := range s.groups {
		if g.cgroup == "" || g.shared() {
			continue
		}
		for _, pod := range g.pods { // all are sandboxes of one pod
			out[g.cgroup] = pod.named()
		}
	}
	return out
}

// Bursting returns the limits with bursts of running containers and pods. Those that are observed or cleared are left out. Plans and
// records have the limits below the bursts, so an instance that begins writes those first.
func (n *Node) Bursting() (out burst.Demand) {
	out.Unlisted = !n.isListed.Load()
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, g := range s.groups {
		s.addBursts(&out, g)
	}
	return out
}

func (s *state) addBursts(to *burst.Demand, g *group) {
	add := func(p *pod, cgroup, scope string, settings policy.Settings) {
		for _, x := range settings {
			if x.Burst.Rate > x.Amount && cgroup != "" && !g.recorded.cleared[cgroup] {
				l, _ := s.liveOf(p.uid, p.namespace, p.name)
				account := burst.Account{Namespace: p.namespace, Owner: l.owner.UID, Scope: scope, Address: x.Address}
				to.Limits = append(to.Limits, burst.Member{Account: account, Pod: g.key, Cgroup: cgroup, Limit: x.Amount, Burst: x.Burst})
			}
		}
	}
	var last *pod
	for p, c := range g.all() {
		if pol := c.decision.policy; !c.mayRun() || pol == nil || pol.Mode() == policy.ModeObserve {
			continue
		}
		last = p
		if slices.ContainsFunc(c.decision.desired.Settings, func(x policy.Setting) bool { return !x.Burst.IsZero() }) {
			add(p, c.cgroup, "", c.inForce().Settings)
		}
	}
	if last != nil && !g.shared() {
		add(last, g.cgroup, annotation.ScopeTotal, g.recorded.granted.Settings)
	}
}

// Raise raises those limits of a group to their bursts for which isRaised is true, and lowers the others. It waits for another writer of the
// group: a limit that is lowered with the next call only would be above its credits for a second. After a failure the reconciler
// retries as well.
func (n *Node) Raise(ctx context.Context, group string, isRaised func(cgroup string, at blkio.Address) bool) error {
	g := n.groupWith(group)
	if g.groupFacts == nil {
		return nil
	}
	err := n.inFlight.passes.For(ctx, group+" burst", passDeadline, func(ctx context.Context) error {
		if !g.token.Take(ctx.Done()) {
			return context.Cause(ctx)
		}
		defer n.release(g)
		if ctx.Err() != nil { // Take chooses by chance if both are ready
			return context.Cause(ctx)
		}
		if targets := n.planFor(g); targets.Raise(isRaised) {
			return n.writeTargets(g, targets, "", logrus.DebugLevel)
		}
		return nil
	})
	if err != nil {
		s := n.state.Lock()
		defer n.state.Unlock()
		s.markDirty(g.in(s))
	}
	return err
}

// groupWith returns the group with a key, if there is one.
func (n *Node) groupWith(key string) (of groupIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	if g := s.groups[key]; g != nil {
		of = g.identity()
	}
	return of
}

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
	for pod, c := range g.all() {
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

// Weighted returns the demand of pods for weights. Containers in observe mode have none; weights that were
// cleared are listed apart.
func (n *Node) Weighted() weights.Demand {
	out := weights.Demand{Complete: true, Budgets: map[string]policy.WeightBudget{}}
	pol := n.policy.Load()
	if !pol.Enforces() {
		return out
	}
	if !n.isListed.Load() {
		out.Complete, out.Unknown, out.Unlisted = false, "the runtime has not listed what runs", true
	}
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, g := range s.groups {
		if g.isConcerned() {
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
	for pod, c := range g.all() {
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

var _ prometheus.Collector = (*Node)(nil)

// Describe implements prometheus.Collector.
func (n *Node) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(n, out) }

// Collect returns the metrics of the node's state. It reads files of cgroups within a deadline, and nothing else of the node, so a
// disk that hangs blocks no scrape. A scrape holds the lock of the state only while it counts.
func (n *Node) Collect(out chan<- prometheus.Metric) {
	c, ends, syncs := n.census(), &n.exits.ends, &n.exits.writeout.Syncs
	c.Unlabelled, c.OverBudget = len(n.unlabelled(time.Now())), n.overBudget()
	n.metrics.Collect(out, &c, &metrics.Totals{Lifted: &ends.Won, Lost: &ends.Lost, FailedExits: &ends.Failed, Synced: &syncs.OK, FailedSyncs: &syncs.Failed})
}

// census counts the pods and containers at one moment.
func (n *Node) census() metrics.Census {
	weightsWork := n.controls.Work()
	s := n.state.Lock()
	defer n.state.Unlock()
	out := metrics.Census{Unexpected: s.unexpected}
	if s.watch != nil {
		out.Watches = 1
	}
	for _, g := range s.groups {
		if !g.isConcerned() {
			continue
		}
		if out.Pods++; g.foreign != "" {
			out.Foreign++
		}
		isPending := g.retry.err != nil
		for _, c := range g.all() {
			if c.mayRun() {
				isPending = isPending || c.hasPendingLimits()
				out.Add(c.state(), c.decision.desired.WarningKinds, !weightsWork && slices.ContainsFunc(c.decision.desired.Settings, isWeight))
			}
		}
		if isPending {
			out.NotInForce++
		}
	}
	return out
}

// isWeight reports whether a setting is a weight, which has no effect where weights do not work.
func isWeight(s policy.Setting) bool { return s.File() == blkio.IOWeight }

// isKeptLimit reports whether a setting is a limit that the plugin keeps in force.
func isKeptLimit(s policy.Setting) bool { return s.IsLimit() && s.Key != blkio.MemoryHigh }

// state returns the state of a container for the metrics.
func (c *snapshot) state() metrics.State {
	switch {
	case c.decision.err != nil:
		return metrics.Failed
	case c.decision.policy == nil || !slices.ContainsFunc(c.inForce().Settings, isKeptLimit):
		return metrics.Unlimited
	case c.decision.policy.Mode() == policy.ModeObserve:
		return metrics.Observed
	}
	return metrics.Limited
}

// hasPendingLimits reports whether a running container has limits that are not decided yet, or not written because its
// cgroup was not seen yet.
func (c *snapshot) hasPendingLimits() bool {
	phase := c.life.Phase()
	switch {
	case !phase.MayRun(), phase == lifecycle.Refused:
		return false
	case c.decision.policy == nil:
		return c.decision.err != nil
	}
	return phase == lifecycle.Starting && c.cgroup != "" && c.state() != metrics.Unlimited
}

// Counts returns the pods with annotations, those with a limit that is not in force, and the
// containers with a request that is not granted.
func (n *Node) Counts() (pods, notInForce, failed int) {
	c := n.census()
	return c.Pods, c.NotInForce, c.States[metrics.Failed]
}
