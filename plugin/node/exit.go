package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/handover"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file handles the end of a container: its limits are lifted, its end is recorded, and the limits of its pod stay until its data
// is on disk.

// setExits initializes the parts that hand over the data of containers that end.
func (n *Node) setExits(sync func(ctx context.Context, hostPath string) error) {
	n.exits.tidier = handover.Tidier{Log: n.log, Cgroups: n.cgroups, Releases: n.releases, Turn: make(chan struct{}, 1), Recovery: n.recovery}
	w := &n.exits.writeout
	w.Storage, w.Calls, w.Tidy = n.storage, &n.inFlight.passes, n.exits.tidier.Tidy
	w.Syncs.Log, w.Syncs.Sync = n.log, w.OnlyLocal(sync)
	n.exits.ends.Log, n.exits.ends.Containers, n.exits.ends.Writeout = n.log, exitHandler{n}, w
	n.exits.ends.Recovery, w.Recovery, w.Syncs.Recovery = n.recovery, n.recovery, n.recovery
}

// endedPod is the pod of ended containers, in the form that a hand-over needs.
type endedPod struct {
	*Node
	g groupIdentity
}

// Cgroup returns the path of the pod's cgroup, "" if it is not known.
func (e endedPod) Cgroup() string { return e.g.cgroup }

// Written notes whether all data of an ended container is on its disk.
func (e endedPod) Written(id string, yes bool) {
	s := e.state.Lock()
	defer e.state.Unlock()
	g := e.g.in(s)
	g.drain.End(id, yes)
	if s.changed(g); yes {
		s.reconcileAt(g, time.Now())
	}
}

// IsDrained reports whether no container runs in the pod's cgroup, and no data is left to write.
func (e endedPod) IsDrained() bool {
	v := e.viewOf(e.g)
	return v.Drained && !v.shared && v.group.cgroup != ""
}

// exitHandler is the state in the form that the exit watch needs.
type exitHandler struct{ *Node }

// Watching has the reconciler add the containers that are known already to the watch.
func (e exitHandler) Watching(watch handover.Adder) {
	s := e.state.Lock()
	defer e.state.Unlock()
	s.watch = watch
	for _, g := range s.groups {
		s.markDirty(g)
	}
}

// Lost notes that no container is watched any more.
func (e exitHandler) Lost() {
	s := e.state.Lock()
	defer e.state.Unlock()
	s.watch = nil
	for _, c := range s.all() {
		s.handle(c, lifecycle.WatchLost)
	}
}

// Ended notes the end of the container of a cgroup. It returns nil if there is nothing to hand over.
func (e exitHandler) Ended(cgroup string) handover.Ended {
	c, do := e.noteEnded(cgroup)
	if !do.Has(lifecycle.HandOver) {
		return nil // removed meanwhile
	}
	end := &endedContainer{e.Node, c, do}
	if !e.policy.Load().Writeback.HandOver || c.exit.plan == nil { // disabled meanwhile
		end.Lifted(false)
		endedPod{e.Node, c.pod.group}.Written(c.id, false)
		return nil
	}
	return end
}

// watchExit adds a container's cgroup to the exit watch if a limit on writes applies to the container or to its pod.
// Each write to the cgroup repeats this, which costs nothing once the watch has the cgroup.
func (n *Node) watchExit(c identity, cg cgroupfs.Cgroup, watch handover.Adder) {
	switch err := watch.Add(cg); {
	case err == nil:
		n.noteWatched(c, watch)
	case !errors.Is(err, blkio.ErrGone):
		n.log.WithError(err).WithField("cgroup", cg.Path()).Warn("Watching a container's exit failed: its limits will not be lifted")
	}
}

// noteWatched notes that the watch has a container, unless the watch has failed meanwhile.
func (n *Node) noteWatched(c identity, by handover.Adder) {
	s := n.state.Lock()
	defer n.state.Unlock()
	if s.watch == by {
		s.handle(c.in(s), lifecycle.WatchArmed)
	}
}

// endedContainer is a container that has ended, as it was at its end.
type endedContainer struct {
	*Node
	c  snapshot
	do lifecycle.Actions
}

// Limits returns the lines that lift its limits.
func (e *endedContainer) Limits() []blkio.Line { return e.c.exit.plan.Limits.Removals().Lines() }

// Alone calls fn while no other goroutine writes to the pod's cgroups, or once ctx has ended.
func (e *endedContainer) Alone(ctx context.Context, fn func()) {
	if e.c.pod.group.token.Take(ctx.Done()) {
		defer e.release(e.c.pod.group)
	}
	fn()
}

// Lifted notes the end of the container, which the reconciler records. yes is true if its limits were lifted.
func (e *endedContainer) Lifted(yes bool) {
	e.addCgroupIDs()
	s := e.state.Lock()
	defer e.state.Unlock()
	s.noteExit(&e.c, yes)
	s.markDirty(e.c.pod.group.in(s))
}

// addCgroupIDs adds the IDs of children that no comparison has seen. The cgroup is mostly still there.
func (e *endedContainer) addCgroupIDs() {
	if known := e.c.exit.cgroupIDs; known != nil {
		now, _ := e.cgroups.Cgroup(e.c.cgroup).IDs() // those before stay: data of children that were removed can belong to them
		e.c.exit.cgroupIDs = slices.Concat(known, slices.DeleteFunc(now, func(id uint64) bool { return slices.Contains(known, id) }))
	}
}

// Counts reports whether the exit watch is the first to report the end.
func (e *endedContainer) Counts() bool { return e.do.Has(lifecycle.RecordExit) }

// Leftovers returns the container's pod, and the disks that the container could write to.
func (e *endedContainer) Leftovers() *handover.Leftovers {
	return &handover.Leftovers{
		ID: e.c.id, Pod: endedPod{e.Node, e.c.pod.group}, Limited: e.c.exit.plan.Limited,
		Disks: &e.c.disks, Log: e.Log(),
	}
}

// Log returns a log that names the container.
func (e *endedContainer) Log() logrus.FieldLogger { return e.c.logger(e.log) }

// noteEnded notes the end of the container of a cgroup. It returns the container as it was, and the actions that
// the caller has to take. There are none if the cgroup has no container.
func (n *Node) noteEnded(cgroup string) (snapshot, lifecycle.Actions) {
	s := n.state.Lock()
	defer n.state.Unlock()
	if found := s.byCgroup[cgroup]; len(found) > 0 {
		c := found[0]
		now := c.snapshot
		c.exit.cgroupIDs = nil // the caller notes the end with the copy
		return now, s.handle(c, lifecycle.WatchFired)
	}
	return snapshot{}, 0
}

// The limits of a pod stay in force for a container that ended before its data was known to be on disk. Without
// them the kernel would write all of it at once. The container's sync may have failed, or no event reported its
// end in time. The kernel counts the data that is left: the dirty pages of the pod's cgroup, including those of
// removed cgroups below it.

// findClean finds out whether a pod without a running container has nothing left to write, and has its limits
// removed then. The kernel's count may be two seconds old (docs/reference/quirks.md), so two passes in a row have
// to find the same.
func (n *Node) findClean(ctx context.Context, g groupIdentity) {
	question, waits := n.waitsForData(g)
	if !waits {
		return
	}
	left, err := n.cgroups.Cgroup(g.cgroup).ReadUnwritten()
	if n.noteUnwritten(g, question, err == nil && left == 0) { // without the memory controller the limits stay
		go n.exits.writeout.Tidy(ctx, endedPod{n, g})
	}
}

// waitsForData returns the question to the kernel whether a group has data left to write. It returns false
// unless the group is drained once the answer is no.
func (n *Node) waitsForData(g groupIdentity) (lifecycle.Question, bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	question, waits := g.in(s).drain.Ask()
	return question, waits && g.cgroup != ""
}

// noteUnwritten notes the kernel's answer, and reports whether the group is drained by it.
func (n *Node) noteUnwritten(of groupIdentity, q lifecycle.Question, clean bool) bool {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	if !g.drain.Answer(q, clean) {
		return false
	}
	s.markDirty(g)
	return true
}

// releases reports whether the plugin may make the kernel move the inodes of removed cgroups. On a kernel that
// is not known to contain the corrections, the policy has to ask for it.
func (n *Node) releases() bool {
	return n.kernel.Corrected() || n.policy.Load().Writeback.Repair == policy.RepairOn
}

// logReleases logs that files of ended containers keep their owner, if the plugin releases none.
func (n *Node) logReleases() {
	if !n.releases() {
		n.log.WithField("kernel", n.kernel.String()).
			Info("Files of ended containers keep their owner until the kernel releases them (writeback.repair: true overrides this)")
	}
}
