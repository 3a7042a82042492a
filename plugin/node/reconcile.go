package node

import (
	"context"
	"errors"
	"iter"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// The work on one group of pods is bounded by a thousand times its normal duration. A call can hang in the
// kernel on a disk that fails, and the other groups must not wait for it.
const (
	passDeadline    = time.Second
	resolveDeadline = 5 * time.Second // resolving may read a mount table that has changed
	maxReconciled   = 4               // groups that are reconciled at the same time
	// firstPause is the time from a group's first failure to the first retry.
	firstPause = 100 * time.Millisecond
)

// reconcile keeps the cgroups equal to the desired values until ctx ends. It reconciles a pod after each event
// that changed it, and all pods at every resync and when disks change.
func (n *Node) reconcile(ctx context.Context) {
	tick := time.NewTicker(n.resync)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
			n.recovery.Step("find recorded pods", func() {
				_ = n.admitRecorded(ctx, n.pods.takeUnread(false)) // the next pass retries, and logs an error
			})
			n.reconcileGroups(ctx, n.pods.takeDirty())
		case <-tick.C:
			n.recovery.Step("find mounts", func() {
				n.pods.resolveAgain(func(c *snapshot) bool { return c.disks.Follows() }) // there may have been no event
			})
			n.reconcileAll(ctx)
		case <-n.all:
			n.reconcileAll(ctx)
		}
	}
}

// reconcileAll compares every pod with its cgroups. It finds limits that another program edited, a disk that
// was removed and has returned, a weight that systemd reset, and a start that was missed.
func (n *Node) reconcileAll(ctx context.Context) {
	defer prometheus.NewTimer(n.metrics.passes).ObserveDuration()
	n.recovery.Step("find recorded pods", func() { n.admitUnread(ctx) })
	n.recovery.Step("find pods without a cgroup", n.findRemovedBystanders)
	groups := n.pods.takeAll()
	n.recovery.Step("find support for weights", func() {
		if n.weight.Refresh() {
			n.pods.dropPlans(groups) // the warning of a weight appears or disappears
		}
	})
	n.each("find running containers", groups, n.findRunning)
	n.each("find removed pods", groups, n.findRemovedPods)
	n.eachAlone("find data left to write", groups, func(g groupIdentity) { n.findClean(ctx, g) })
	undeclared := n.undeclared()
	n.each("find undeclared disks", groups, func(some []groupIdentity) { undeclared.find(ctx, some) })
	n.reconcileGroups(ctx, n.unreconciled(ctx, groups))
	n.eachAlone("find unmatched targets", groups, n.warnUnmatched)
	n.eachAlone("note decisions", groups, n.noteDecisions)
	n.recovery.Step("find unknown facts", n.warnLacking)
}

// each makes a step for groups. After a panic it makes the step for each of them alone, so that
// only the group that causes the panic is left out.
func (n *Node) each(step string, groups []groupIdentity, fn func([]groupIdentity)) {
	if !n.recovery.Step(step, func() { fn(groups) }) {
		n.eachAlone(step, groups, func(g groupIdentity) { fn([]groupIdentity{g}) })
	}
}

// eachAlone makes a step for each group. A panic ends the step for one group only.
func (n *Node) eachAlone(step string, groups []groupIdentity, fn func(groupIdentity)) {
	for _, g := range groups {
		n.recovery.Step(step, func() { fn(g) })
	}
}

// reconcileGroups reconciles up to maxReconciled groups at a time, and returns when all have ended. A group whose disk does not
// answer takes one of these places until its deadlines, and the other groups use the others.
func (n *Node) reconcileGroups(ctx context.Context, groups []groupIdentity) {
	var running errgroup.Group
	running.SetLimit(maxReconciled)
	for _, g := range groups {
		running.Go(func() error {
			n.recovery.Step("reconcile a pod", func() { n.reconcileGroup(ctx, g) })
			return nil
		})
	}
	_ = running.Wait() // reconcileGroup logs errors, and returns none
}

// unreconciled returns the groups that need reconcileGroup. In most passes nearly all groups are unchanged, so
// one bounded call checks all of them.
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
		return groups // some cgroup does not answer, so each group gets a bounded call of its own
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

// groupIsUnchanged reports whether all limits of a group are known, in force and without a problem. Even if an event
// of the pod has written all limits since a failure, only reconcileGroup ends the problem.
func (n *Node) groupIsUnchanged(g groupIdentity, buf []byte) bool {
	if n.pods.problemLasts(g) || !n.pods.tryTake(g) {
		return false
	}
	defer n.pods.release(g)
	targets := n.pods.planOf(g)
	unresolved, hung := n.pods.unresolved(g, n.policy.Load(), n.layers.current.Load())
	return targets != nil && len(unresolved)+len(hung) == 0 && !n.pods.hasEdit(g) && n.applier().enforcer().IsUnchanged(targets, buf)
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

// findRunning finds containers that have a process although no event reported their start. The runtime sent the
// event before the plugin connected, or before the container had its cgroup.
func (n *Node) findRunning(groups []groupIdentity) {
	for _, c := range n.pods.mayHaveStarted(groups) {
		// The next pass repeats a read that failed.
		if populated, err := n.cgroups.Cgroup(c.cgroup).Populated(); err == nil && populated {
			n.pods.noteRunning(c)
		}
	}
}

// mayHaveStarted returns the containers of groups that have no process as far as the plugin knows.
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

// noteRunning notes that a container has a process, and drops the plan of its group.
func (t *podTable) noteRunning(c identity) {
	s := t.state.Lock()
	defer t.state.Unlock()
	s.handle(c.in(s), lifecycle.CgroupPopulated)
	s.changed(c.pod.group.in(s))
}

// reconcileGroup returns no error: a failure is logged, recorded on the cgroup, and retried with the next pass.
// Resolving a container can hang. So it runs apart from the writes, and keeps no limit of the pod from being
// written.
func (n *Node) reconcileGroup(ctx context.Context, g groupIdentity) {
	resolved := n.inFlight.passes.For(ctx, g.key+" resolve", resolveDeadline, func(ctx context.Context) error {
		return errors.Join(n.resolveAll(ctx, g)...)
	})
	written := n.inFlight.passes.For(ctx, g.key, passDeadline, func(context.Context) error {
		if !n.pods.tryTake(g) {
			return n.errIfWriteHangs(g) // the goroutine that writes will mark the group dirty
		}
		defer n.pods.release(g)
		return n.applier().write(g, "")
	})
	err := errors.Join(resolved, written)
	n.logProblem(ctx, g, err)
	n.retryLater(ctx, g, err != nil || n.pods.hasLate(g))
	n.noteDecisions(g)
}

// retryLater has the reconciler retry a group after a failure, and with a late container. The pause grows with each failure in a row. Once
// it reaches the resync, the next pass over the node is the retry.
func (n *Node) retryLater(ctx context.Context, g groupIdentity, failed bool) {
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

// nextPause returns the time until the next retry of a group, at most longest. It returns 0 without a failure.
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

// logProblem logs the error that keeps limits from being in force. It logs when the error begins, again every ten
// minutes, and when it has ended, because each event of the pod and each pass finds the same error.
func (n *Node) logProblem(ctx context.Context, g groupIdentity, err error) {
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
	n.noteProblem(g, err)
}

// remind notes the error of a group, nil if it has none. due reports whether to log it; ended reports whether
// an earlier error has ended.
func (t *podTable) remind(g groupIdentity, err error) (due, ended bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	problem := &g.in(s).retry.problem
	lasted := problem.Lasts()
	return problem.Due(time.Now(), err), lasted && err == nil
}

func (t *podTable) problemLasts(g groupIdentity) bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	return g.in(s).retry.problem.Lasts()
}

func (n *Node) errIfWriteHangs(g groupIdentity) error {
	if n.pods.writeHangs(g) {
		return errWriteHangs
	}
	return nil
}

// warnUnmatched logs, once for each pod, the targets that no container of a running pod has. It runs in a full
// pass only, because containers are created one by one.
func (n *Node) warnUnmatched(g groupIdentity) {
	for _, pod := range n.pods.toWarn(g) {
		log := n.log.WithField("pod", pod.String())
		for _, w := range pod.request.now.Load().under(n.policy.Load()).Unmatched(n.pods.createdContainers(pod)) {
			log.Warn(w)
		}
	}
}

// createdContainers returns the containers of a pod that have been created so far, and those that have ended by the pod's
// record. The runtime does not list ended containers when the plugin connects.
func (t *podTable) createdContainers(pod podIdentity) []policy.Container {
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
				ready = false // a target may be for this container
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
