package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/layers"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Finding the disks of a container can hang in the kernel, or fail. So it is done for each container apart, and decides nothing.

// finder finds the disks of containers. It changes only the snapshots that it is given.
type finder struct{ *environment }

func (n *Node) finder() finder { return finder{&n.environment} }

// sought is what a decision needs to know about the disks of a container.
type sought struct {
	targets annotation.Targets // whose disks are needed
	lowest  bool               // the physical disks below them as well, for a budget
}

func soughtBy(pol *policy.Pod) *sought { return &sought{pol.Targets(), pol.Budget() != nil} }

// find finds those disks of a container that are not known yet. An error is an internal failure, after which c must not be used. Disks
// that cannot be read are noted in c.disks, and the others are kept. notCompared is why the mounts were not compared.
func (f finder) find(ctx context.Context, what *sought, now *layers.Locations, c *snapshot) (notCompared, err error) {
	targets := what.targets
	c.disks.InvalidateFor(targets)
	switch {
	case !c.disks.IsResolved():
		err = f.findDisks(ctx, targets, c, now)
	case c.hasMoved(now):
		err = f.move(ctx, targets, c, now)
	}
	if err != nil {
		return nil, err
	}
	if c.needsComparison() {
		notCompared = f.compareMounts(ctx, targets, c)
	}
	c.disks.Facts.Undeclared = c.undeclared()
	if c.disks.Facts.Lowest = nil; what.lowest { // they may have changed since the last search
		f.inventory().FindLowest(&c.disks)
	}
	return notCompared, nil
}

// inventory returns an inventory.Finder with the storage of the node.
func (f finder) inventory() *inventory.Finder {
	return &inventory.Finder{Storage: f.storage, KubeletRoot: f.kubelet, ProcessMounts: f.processMounts}
}

// inventoried returns the facts about a pod by which the disks of its containers are found.
func (p *podIdentity) inventoried(targets annotation.Targets) *inventory.Pod {
	return &inventory.Pod{UID: p.uid, Sandbox: p.id, Targets: targets}
}

// findDisks finds the disks of a container by its description in the runtime's event.
func (f finder) findDisks(ctx context.Context, targets annotation.Targets, c *snapshot, now *layers.Locations) error {
	if c.cgroup == "" {
		return c.search.err
	}
	if err := f.storage.Refresh(ctx); err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	if c.layer == nil || c.hasMoved(now) {
		c.layer = now.Own(c.pod.request.now.Load().Handler)
		c.disks.Facts.Rootfs = blkio.Backing{} // the layer was never there
	}
	if err := f.inventory().Find(ctx, c.pod.inventoried(targets), c.layer.Layer, &c.disks); err != nil {
		return err
	}
	c.disks.Facts.MemoryLimited = f.isMemoryLimited(c)
	return nil // the disks that were found are kept, and the reconciler searches for the others again
}

// isMemoryLimited reports whether a memory limit bounds the dirty pages of the container. A later resize does
// not count, because the warning is about the request.
func (f finder) isMemoryLimited(c *snapshot) bool {
	return policy.MemoryBoundsDirty(c.memoryLimit, f.nodeMemory) ||
		policy.MemoryBoundsDirty(f.cgroups.Cgroup(c.pod.group.cgroup).MemoryMax(), f.nodeMemory)
}

// move finds the disk of a writable layer whose location has changed. All other facts about the container stay
// valid.
func (f finder) move(ctx context.Context, targets annotation.Targets, c *snapshot, now *layers.Locations) error {
	layer := now.Own(c.pod.request.now.Load().Handler)
	rootfs := *layer.Backing(ctx, f.storage)
	switch {
	case rootfs.Err == nil:
	case targets.HasRootfs():
		return fmt.Errorf("find the writable layer: %w", rootfs.Err)
	default:
		rootfs.Err = nil // no target means it
	}
	c.layer, c.disks.Facts.Rootfs = layer, rootfs
	return nil
}

// compareMounts adds to the facts of a container the disks under the mounts of its first process that the
// plugin did not know.
func (f finder) compareMounts(ctx context.Context, targets annotation.Targets, c *snapshot) error {
	err := f.inventory().Compare(ctx, c.pod.inventoried(targets), &c.disks, c.pid, c.cgroup)
	if errors.Is(err, storage.ErrNoProcess) {
		if populated, unknown := f.cgroups.Cgroup(c.cgroup).Populated(); unknown == nil && !populated {
			c.disks.SetCompared()
			return nil // it has ended
		}
	}
	if err != nil {
		return fmt.Errorf("compare mounts: %w", err)
	}
	return nil
}

// find finds those disks of a container of the state that are not known yet, for the targets that count: also if others begin to
// count meanwhile. It does only what earlier searches have left open.
func (n *Node) find(ctx context.Context, of identity) error {
	if !of.token.Take(ctx.Done()) {
		return fmt.Errorf("wait for another search for the container's disks: %w", context.Cause(ctx))
	}
	var c snapshot
	isUnused := false // by the caller
	defer func() { n.endSearch(&c, isUnused) }()
	for {
		c = n.snapshot(of.ref) // changes after this are missed
		now, pol := n.layers.Current(), n.policy.Load()
		by := of.pod.request.now.Load().Under(pol)
		what := soughtBy(by)
		if c.isFound(what, now) {
			return nil
		}
		isSame := c.decidedBy(pol) || c.disks.Covers(what.targets)
		var notCompared error
		err := n.recallContainer(&c)
		if err == nil {
			notCompared, err = n.finder().find(ctx, what, now, &c)
		}
		n.noteFound(&c, isSame, err)
		isUnused = err == nil && ctx.Err() != nil
		if next := of.pod.request.now.Load().Under(n.policy.Load()); err != nil || next == by || c.disks.Covers(next.Targets()) {
			return cmp.Or(err, notCompared)
		}
	}
}

// isFound reports whether all that is sought about the disks of the container is known.
func (c *snapshot) isFound(what *sought, now *layers.Locations) bool {
	disks := c.disks
	disks.InvalidateFor(what.targets)
	return c.isDecidable() && (!what.lowest || disks.Facts.Lowest != nil) && disks.IsResolved() && !c.hasMoved(now) && !c.needsComparison() &&
		slices.Equal(c.disks.Facts.Undeclared, c.undeclared())
}

// endSearch returns the token that was taken for a search. Then the reconciler uses what was found, if the caller has given up waiting
// for it, and searches again, if the disks may have changed since. While the token was held, it could do neither.
func (n *Node) endSearch(found *snapshot, isUnused bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	c := found.in(s)
	c.token.Return()
	if isUnused || c.search.rev != found.search.rev {
		s.markDirty(c.pod.group.in(s))
	}
}

// noteFound notes what a search has found, or its error. isSame is false if a new policy, or other
// labels of the namespace, can have further targets.
func (n *Node) noteFound(found *snapshot, isSame bool, err error) {
	s := n.state.Lock()
	defer n.state.Unlock()
	c := found.in(s)
	defer s.changed(c.pod.group.in(s))
	if found.recalled != nil { // otherwise another read may have succeeded
		c.setRecalled(found.recalled)
	}
	if c.decision.policy == nil && c.recalled != nil && c.recalled.unvetted {
		c.vetting = unvetted
	}
	if c.search.err = err; err != nil {
		if c.decision.policy == nil {
			c.redecide(func(d *decision) { d.err = err }) // for the record
		}
		return
	}
	if isSame && c.vetting == vetted && found.hasOtherDisks(&c.snapshot) { // the budget was not asked about these
		c.vetting = unvetted
	}
	// Only these fields are copied, because an event may have changed others.
	c.disks, c.layer = found.disks, found.layer
	if c.search.rev == found.search.rev {
		found.search.rev++ // as below
	} else { // they may have changed since the search began
		c.disks.Invalidate()
	}
	c.search.rev++
	s.remember(&c.snapshot)
}

// hasOtherDisks reports whether other disks were found for the container than before, or others for one of its mounts: also among
// the same disks, a mount can bring a higher limit, or a use that was none.
func (c *snapshot) hasOtherDisks(before *snapshot) bool {
	now, former := slices.Collect(c.disks.Facts.Objects()), slices.Collect(before.disks.Facts.Objects())
	return !slices.EqualFunc(now, former, func(a, b policy.Object) bool { return slices.Equal(a.Disks, b.Disks) })
}

// MountsChanged has those containers resolved again that receive mounts of the host while they run. It does not
// wait for that.
func (n *Node) MountsChanged() {
	n.searchAgain(func(c *snapshot) bool { return c.disks.Propagates() })
}

// DisksChanged reconciles all pods now instead of at the next resync, because a disk that was removed lost its
// limits, and may have returned. Containers that may have got other disks are resolved again. It does not wait
// for that.
func (n *Node) DisksChanged() {
	n.searchAgain(func(c *snapshot) bool { return c.disks.Follows() })
	reminder.Wake(n.all)
}

// searchAgain has the running containers for which a condition holds resolved once more.
func (n *Node) searchAgain(of func(*snapshot) bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for pod, c := range s.all() {
		if c.mayRun() && of(&c.snapshot) {
			s.resolveAgain(c)
			s.markDirty(pod.group.in(s))
		}
	}
}

// resolveAgain has a container resolved once more, if its disks may have changed.
func (s *state) resolveAgain(c *container) {
	if c.disks.Invalidate() {
		c.search.rev++
		s.changed(c.pod.group.in(s))
	}
}

// A restarted plugin gets the annotations and labels of a pod from the runtime, as they were when the sandbox was made. What an
// earlier process has granted, and what only the API server knows, is in the records on the cgroups. Each record is read once: that
// of a pod before its first decision, and that of a container with the first search for its disks.

// recall reads the record of a group's pod that an earlier process left, unless that has succeeded for each of its sandboxes.
func (n *Node) recall(g groupIdentity) error {
	if g.cgroup == "" || !n.mayRecall(g) {
		return nil
	}
	r, err := n.readRecord(g.cgroup, record.KindPod)
	switch {
	case errors.Is(err, blkio.ErrGone):
		return nil // not created yet
	case err != nil:
		return fmt.Errorf("read the record of the pod: %w", err)
	}
	n.noteRecalled(g, r)
	return nil
}

// readRecord reads a record. It is nil if there is none that can be used.
func (e *environment) readRecord(cgroup, kind string) (*record.Record, error) {
	r, err := record.Read(e.cgroups.Cgroup(cgroup), kind)
	if errors.Is(err, record.ErrParse) || errors.Is(err, blkio.ErrNotSupported) { // inspect reports the former
		return nil, nil
	}
	return r, err
}

func (n *Node) mayRecall(of groupIdentity) bool {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	return g.concern != recordRead || slices.ContainsFunc(g.pods, func(p *pod) bool { return !p.restored })
}

// noteRecalled takes over the record of a pod, which is nil if there is none.
func (n *Node) noteRecalled(of groupIdentity, r *record.Record) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	if g.concern != recordRead && r != nil { // otherwise the record may be one of this process
		g.recorded.exits, g.recorded.limits = record.WithExits(r.Exits, g.recorded.exits), limitsOf(r)
		granted := r.Granted()
		granted.Settings, granted.Lowered = granted.Settings.Carry(), granted.Lowered.Carry()
		g.recorded.granted = &granted
		s.recount(g)
	}
	g.concern = recordRead
	for _, p := range g.pods {
		if !p.restored {
			p.restored = true
			s.restore(p, r)
		}
	}
}

// restore takes over an edit from a record.
func (s *state) restore(p *pod, r *record.Record) {
	if r == nil || r.UID != p.uid || r.Edit == nil {
		return
	}
	now := p.request.now.Load()
	if next := now.Restored(r.Edit, p.id); next != now {
		s.replaceRequest(p, next)
		s.revise(p)
	}
}

// recallContainer reads the record of a container that an earlier process left, unless that has succeeded before.
func (n *Node) recallContainer(c *snapshot) error {
	if c.recalled != nil || c.cgroup == "" {
		return nil
	}
	own, err := n.readRecord(c.cgroup, record.KindContainer)
	if err != nil && !errors.Is(err, blkio.ErrGone) {
		return fmt.Errorf("read the record of the container: %w", err)
	}
	c.recalled = noRecord
	if own != nil {
		c.recalled = recalledFrom(own)
	}
	return nil
}

// recalledFrom returns what the record of a container says.
func recalledFrom(r *record.Record) *recalled {
	decided, lent := (&policy.Desired{Settings: r.Settings, Lowered: r.Lowered, Disks: r.Disks}).Unborrow(r.Lent)
	own := *r
	own.Settings, own.Lowered = decided.Settings, decided.Lowered
	return &recalled{granted: own.Granted(), limits: limitsOf(&own), lent: lent, unvetted: r.Unvetted}
}

// limitsOf returns the limits of a record without the backstop. Observed ones count, as those of an observed container that was decided
// do.
func limitsOf(r *record.Record) policy.Settings {
	return r.Settings.Where(func(s policy.Setting) bool { return s.Key.IsRate() && s.Source.Kind != policy.FromBackstop })
}
