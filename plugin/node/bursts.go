package node

import (
	"context"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/burst"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// This file lists the limits with bursts, for package burst, and raises them. Plans and records have the limits below the bursts, so an
// instance that begins writes those first.

// Bursting returns the limits with bursts of running containers and pods. Those that are observed or cleared are left out.
func (n *Node) Bursting() (out burst.Demand) {
	out.Unlisted = !n.isListed.Load()
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, g := range s.groups {
		if s.concerns(g) {
			s.addBursts(&out, g)
		}
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
	for _, p := range g.pods {
		for _, c := range p.containers {
			if pol := c.decision.policy; !c.mayRun() || pol == nil || pol.Mode() == policy.ModeObserve {
				continue
			}
			last = p
			if slices.ContainsFunc(c.decision.desired.Settings, func(x policy.Setting) bool { return !x.Burst.IsZero() }) {
				add(p, c.cgroup, "", c.inForce().Settings)
			}
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
		if !n.take(g, ctx.Done()) {
			return context.Cause(ctx)
		}
		defer n.release(g)
		if ctx.Err() != nil { // take chooses by chance if both are ready
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
