package plugin

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// The work on one group of pods is bounded by a thousand times what it takes. A
// call can hang in the kernel on a dying disk; the others must not wait for it.
const (
	passDeadline = time.Second
	lookDeadline = 5 * time.Second // it may read a mount table that has changed
	// firstPause is the time from a group's first failure to the next try.
	firstPause = 100 * time.Millisecond
)

// reconcile keeps cgroups and desires equal until ctx ends: the pods that an
// event touched at once, all of them every resync and when disks change.
func (p *Plugin) reconcile(ctx context.Context) {
	tick := time.NewTicker(p.resync)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			for _, g := range p.takeDirty() {
				p.reconcileGroup(ctx, g)
			}
		case <-tick.C:
			p.lookAgain(func(c *container) bool { return c.disks.Follows() }) // there may have been no event
			p.reconcileAll(ctx)
		case <-p.look:
			p.reconcileAll(ctx)
		}
	}
}

// reconcileAll looks at every pod: limits edited behind our back, a disk that
// left and came back, a weight that systemd put back, a start that was missed.
func (p *Plugin) reconcileAll(ctx context.Context) {
	defer prometheus.NewTimer(p.metrics.passes).ObserveDuration()
	groups := p.takeAll()
	if p.weight.Look() {
		p.dropPlans(groups) // a warning comes or goes
	}
	p.findRunning(groups)
	p.findGone(groups)
	p.findClean(ctx, groups)
	p.findReached(ctx, groups)
	for _, g := range p.restless(ctx, groups) {
		p.reconcileGroup(ctx, g)
	}
	for _, g := range groups {
		p.warnUnmatched(g)
	}
}

// restless returns the groups that a pass has to look at closely: a pass over a
// node is mostly to see that nothing has changed, and that is done in one go.
func (p *Plugin) restless(ctx context.Context, groups []*group) []*group {
	found := make(chan []*group, 1)
	err := p.inFlight.passes.For(ctx, "", passDeadline, func(context.Context) error {
		var out []*group
		buf := make([]byte, 0, 4096)
		for _, g := range groups {
			if !p.groupIsQuiet(g, buf) {
				out = append(out, g)
			}
		}
		found <- out
		return nil
	})
	if err != nil {
		return groups // some cgroup does not answer: each by itself
	}
	return <-found
}

func (p *Plugin) dropPlans(groups []*group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range groups {
		g.changed()
	}
}

func (p *Plugin) groupIsQuiet(g *group, buf []byte) bool {
	if !p.tryTake(g) {
		return false
	}
	defer p.release(g)
	targets := p.planOf(g)
	unsettled, hung := p.unsettled(g)
	return targets != nil && len(unsettled)+len(hung) == 0 && p.enforcer().IsQuiet(targets, buf)
}

func (p *Plugin) takeDirty() []*group {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := slices.Collect(maps.Keys(p.dirty))
	clear(p.dirty)
	return out
}

func (p *Plugin) takeAll() []*group {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.dirty)
	return slices.AppendSeq(make([]*group, 0, len(p.groups)), maps.Values(p.groups))
}

// findRunning looks for containers that have a process although no event reported their start:
// the runtime had sent it before we connected, or before the container had its cgroup.
func (p *Plugin) findRunning(groups []*group) {
	for _, c := range p.mayHaveStarted(groups) {
		// A failed read is repeated with the next pass.
		if populated, err := p.cgroups.Cgroup(c.cgroup).Populated(); err == nil && populated {
			p.noteRunning(c)
		}
	}
}

// mayHaveStarted returns the containers without a process as far as is known.
func (p *Plugin) mayHaveStarted(groups []*group) []*container {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*container
	for _, g := range groups {
		for _, pod := range g.pods {
			for _, c := range pod.containers {
				if c.life.Phase().MayHaveStarted() && c.cgroup != "" {
					out = append(out, c)
				}
			}
		}
	}
	return out
}

// noteRunning notes that a container has a process, and has its cgroup looked at closely.
func (p *Plugin) noteRunning(c *container) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handle(c, lifecycle.CgroupPopulated)
	c.pod.group.changed()
}

// reconcileGroup never fails: what does not work is logged, recorded on the
// cgroup and tried again with the next pass. A look at a container that hangs
// keeps no limit of its pod from being written, so that is done apart.
func (p *Plugin) reconcileGroup(ctx context.Context, g *group) {
	settled := p.inFlight.passes.For(ctx, g.key+" look", lookDeadline, func(ctx context.Context) error {
		return errors.Join(p.settleAll(ctx, g)...)
	})
	written := p.inFlight.passes.For(ctx, g.key, passDeadline, func(context.Context) error {
		if !p.tryTake(g) {
			return p.errIfHangs(g) // else who is at it looks again
		}
		defer p.release(g)
		return p.write(g, "")
	})
	err := errors.Join(settled, written)
	p.complain(ctx, g, err)
	p.tryAgain(ctx, g, err != nil)
}

// tryAgain has the reconciler look at a group soon after a failure, the later the longer
// it fails, until the next pass over the node is as soon.
func (p *Plugin) tryAgain(ctx context.Context, g *group, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !failed {
		g.retry.pause = 0
		return
	}
	if g.retry.pause = max(2*g.retry.pause, firstPause); g.retry.pause >= p.resync || ctx.Err() != nil {
		g.retry.pause = p.resync
		return
	}
	time.AfterFunc(g.retry.pause, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if ctx.Err() == nil {
			p.markDirty(g)
		}
	})
}

// complain logs what keeps limits from being in force when that begins, again every
// ten minutes, and when it has ended: each event of the pod and each pass finds it.
func (p *Plugin) complain(ctx context.Context, g *group, err error) {
	if ctx.Err() != nil {
		return
	}
	log := p.log.WithField("cgroup", g.cgroup)
	switch due, ended := p.remind(g, err); {
	case due:
		log.WithError(err).Error("Some limits are not in force, retrying")
	case ended:
		log.Info("All limits are in force again")
	}
}

// remind notes the problem of a group, nil for none, and reports whether it is to be
// logged, and whether there was one before.
func (p *Plugin) remind(g *group, err error) (due, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lasted := g.retry.problem.Lasts()
	return g.retry.problem.Due(time.Now(), err), lasted && err == nil
}

func (p *Plugin) errIfHangs(g *group) error {
	if p.hangs(g) {
		return errors.New("a write to the pod's cgroups hangs in the kernel")
	}
	return nil
}

// warnUnmatched tells once of targets that no container of a running pod has.
// It waits for a full pass, since containers come one by one.
func (p *Plugin) warnUnmatched(g *group) {
	for _, pod := range p.toWarn(g) {
		log := p.log.WithField("pod", pod.String())
		err := bounded.Guarded(func() error {
			for _, w := range policy.Unmatched(pod.request(), p.came(pod)) {
				log.Warn(w)
			}
			return nil
		})
		if err != nil {
			log.WithError(err).Error("Finding unmatched targets failed")
		}
	}
}

// came returns the containers of a pod that came so far, and those that the pod's record
// knows to have ended: the runtime does not list these when the plugin connects.
func (p *Plugin) came(pod *pod) []policy.Container {
	p.mu.Lock()
	defer p.mu.Unlock()
	return record.WithEnded(pod.seen(), pod.group.recorded.exits)
}

func (p *Plugin) toWarn(g *group) []*pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*pod
	for _, pod := range g.pods {
		ready := false
		for _, c := range pod.containers {
			if c.decision.policy == nil {
				ready = false // it may be the one
				break
			}
			ready = ready || c.mayRun()
		}
		if ready && !pod.warned {
			pod.warned = true
			g.changed()
			out = append(out, pod)
		}
	}
	return out
}
