package node

import (
	"context"
	"errors"
	"iter"
	"maps"
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
	passDeadline    = time.Second
	resolveDeadline = 5 * time.Second // it may read a mount table that has changed
	// firstPause is the time from a group's first failure to the next try.
	firstPause = 100 * time.Millisecond
)

// reconcile keeps cgroups and desires equal until ctx ends: the pods that an
// event touched at once, all of them every resync and when disks change.
func (n *Node) reconcile(ctx context.Context) {
	tick := time.NewTicker(n.resync)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
			_ = n.admitRecorded(ctx, n.pods.takeUnread(false)) // the next pass tries again, and logs an error
			for _, g := range n.pods.takeDirty() {
				n.reconcileGroup(ctx, g)
			}
		case <-tick.C:
			n.pods.resolveAgain(func(c *snapshot) bool { return c.disks.Follows() }) // there may have been no event
			n.reconcileAll(ctx)
		case <-n.all:
			n.reconcileAll(ctx)
		}
	}
}

// reconcileAll looks at every pod: limits edited behind our back, a disk that
// left and came back, a weight that systemd put back, a start that was missed.
func (n *Node) reconcileAll(ctx context.Context) {
	defer prometheus.NewTimer(n.metrics.passes).ObserveDuration()
	n.admitUnread(ctx)
	n.findRemoved()
	groups := n.pods.takeAll()
	if n.weight.Look() {
		n.pods.dropPlans(groups) // a warning comes or goes
	}
	n.findRunning(groups)
	n.findGone(groups)
	n.findUnlisted()
	n.findClean(ctx, groups)
	undeclared := n.undeclared()
	undeclared.find(ctx, groups)
	for _, g := range n.unreconciled(ctx, groups) {
		n.reconcileGroup(ctx, g)
	}
	for _, g := range groups {
		n.warnUnmatched(g)
	}
}

// unreconciled returns the groups that a pass has to look at closely: a pass over a
// node is mostly to see that nothing has changed, and that is done in one go.
func (n *Node) unreconciled(ctx context.Context, groups []groupIdentity) []groupIdentity {
	found := make(chan []groupIdentity, 1)
	err := n.inFlight.passes.For(ctx, "", passDeadline, func(context.Context) error {
		var out []groupIdentity
		buf := make([]byte, 0, 4096)
		for _, g := range groups {
			if !n.groupIsUnchanged(g, buf) {
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

func (t *podTable) dropPlans(groups []groupIdentity) {
	s := t.state.Lock()
	defer t.state.Unlock()
	for _, g := range groups {
		s.changed(g.in(s))
	}
}

func (n *Node) groupIsUnchanged(g groupIdentity, buf []byte) bool {
	if !n.pods.tryTake(g) {
		return false
	}
	defer n.pods.release(g)
	targets := n.pods.planOf(g)
	unresolved, hung := n.pods.unresolved(g, n.policy.Load(), n.layers.current.Load())
	return targets != nil && len(unresolved)+len(hung) == 0 && n.applier().enforcer().IsUnchanged(targets, buf)
}

func (t *podTable) takeDirty() []groupIdentity {
	s := t.state.Lock()
	defer t.state.Unlock()
	defer clear(s.dirty)
	return identities(len(s.dirty), maps.Keys(s.dirty))
}

func (t *podTable) takeAll() []groupIdentity {
	s := t.state.Lock()
	defer t.state.Unlock()
	clear(s.dirty)
	return identities(len(s.groups), maps.Values(s.groups))
}

// identities returns the identities of count groups.
func identities(count int, groups iter.Seq[*group]) []groupIdentity {
	out := make([]groupIdentity, 0, count)
	for g := range groups {
		out = append(out, g.groupIdentity)
	}
	return out
}

// findRunning looks for containers that have a process although no event reported their start:
// the runtime had sent it before we connected, or before the container had its cgroup.
func (n *Node) findRunning(groups []groupIdentity) {
	for _, c := range n.pods.mayHaveStarted(groups) {
		// A failed read is repeated with the next pass.
		if populated, err := n.cgroups.Cgroup(c.cgroup).Populated(); err == nil && populated {
			n.pods.noteRunning(c)
		}
	}
}

// mayHaveStarted returns the containers without a process as far as is known.
func (t *podTable) mayHaveStarted(groups []groupIdentity) []identity {
	s := t.state.Lock()
	defer t.state.Unlock()
	var out []identity
	for _, g := range groups {
		for _, pod := range g.in(s).pods {
			for _, c := range pod.containers {
				if c.life.Phase().MayHaveStarted() && c.cgroup != "" {
					out = append(out, c.identity)
				}
			}
		}
	}
	return out
}

// noteRunning notes that a container has a process, and has its cgroup looked at closely.
func (t *podTable) noteRunning(c identity) {
	s := t.state.Lock()
	defer t.state.Unlock()
	s.handle(c.in(s), lifecycle.CgroupPopulated)
	s.changed(c.pod.group.in(s))
}

// reconcileGroup never fails: what does not work is logged, recorded on the
// cgroup and tried again with the next pass. A look at a container that hangs
// keeps no limit of its pod from being written, so that is done apart.
func (n *Node) reconcileGroup(ctx context.Context, g groupIdentity) {
	resolved := n.inFlight.passes.For(ctx, g.key+" look", resolveDeadline, func(ctx context.Context) error {
		return errors.Join(n.resolveAll(ctx, g)...)
	})
	written := n.inFlight.passes.For(ctx, g.key, passDeadline, func(context.Context) error {
		if !n.pods.tryTake(g) {
			return n.errIfHangs(g) // else who is at it looks again
		}
		defer n.pods.release(g)
		return n.applier().write(g, "")
	})
	err := errors.Join(resolved, written)
	n.complain(ctx, g, err)
	n.tryAgain(ctx, g, err != nil)
}

// tryAgain has the reconciler look at a group soon after a failure, the later the longer
// it fails, until the next pass over the node is as soon.
func (n *Node) tryAgain(ctx context.Context, g groupIdentity, failed bool) {
	pause := n.pods.nextPause(g, failed, n.resync)
	if pause == 0 || pause >= n.resync || ctx.Err() != nil {
		return
	}
	time.AfterFunc(pause, func() {
		if ctx.Err() == nil {
			n.pods.markDirty(g)
		}
	})
}

// nextPause returns the time until a group is tried again, at most longest, and 0 without a
// failure.
func (t *podTable) nextPause(g groupIdentity, failed bool, longest time.Duration) time.Duration {
	s := t.state.Lock()
	defer t.state.Unlock()
	retry := &g.in(s).retry
	if !failed {
		retry.pause = 0
	} else {
		retry.pause = min(max(2*retry.pause, firstPause), longest)
	}
	return retry.pause
}

// complain logs what keeps limits from being in force when that begins, again every
// ten minutes, and when it has ended: each event of the pod and each pass finds it.
func (n *Node) complain(ctx context.Context, g groupIdentity, err error) {
	if ctx.Err() != nil {
		return
	}
	log := n.log.WithField("cgroup", g.cgroup)
	switch due, ended := n.pods.remind(g, err); {
	case due:
		log.WithError(err).Error("Some limits are not in force, retrying")
	case ended:
		log.Info("All limits are in force again")
	}
}

// remind notes the problem of a group, nil for none, and reports whether it is to be
// logged, and whether there was one before.
func (t *podTable) remind(g groupIdentity, err error) (due, ended bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	problem := &g.in(s).retry.problem
	lasted := problem.Lasts()
	return problem.Due(time.Now(), err), lasted && err == nil
}

func (n *Node) errIfHangs(g groupIdentity) error {
	if n.pods.hangs(g) {
		return errors.New("a write to the pod's cgroups hangs in the kernel")
	}
	return nil
}

// warnUnmatched tells once of targets that no container of a running pod has.
// It waits for a full pass, since containers come one by one.
func (n *Node) warnUnmatched(g groupIdentity) {
	for _, pod := range n.pods.toWarn(g) {
		log := n.log.WithField("pod", pod.String())
		err := bounded.Guarded(func() error {
			for _, w := range policy.Unmatched(pod.asks.under(n.policy.Load()).Request(), n.pods.came(pod)) {
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
func (t *podTable) came(pod podIdentity) []policy.Container {
	s := t.state.Lock()
	defer t.state.Unlock()
	return record.WithEnded(pod.in(s).seen(), pod.group.in(s).recorded.exits)
}

func (t *podTable) toWarn(of groupIdentity) []podIdentity {
	s := t.state.Lock()
	defer t.state.Unlock()
	g := of.in(s)
	var out []podIdentity
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
			s.changed(g)
			out = append(out, pod.podIdentity)
		}
	}
	return out
}
