package node

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/notice"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file finds the disks that no mount or device of a container declares: those that it uses, and those that are lent to its pod.

// undeclared finds the undeclared disks of containers.
type undeclared struct {
	*Node
	*sharedReads
}

func newSharedReads(e *environment) *sharedReads {
	return &sharedReads{inventory.NewStacks(e.storage), inventory.NewCounters(e.readIOBytes)}
}

func (n *Node) undeclared(shared *sharedReads) undeclared {
	return undeclared{n, shared}
}

// find finds the undeclared disks of containers of a group. A group with a new one is not unchanged any more.
func (u *undeclared) find(ctx context.Context, g groupIdentity, of []containerRef) {
	if len(of) == 0 {
		return
	}
	err := u.inFlight.passes.For(ctx, g.key+" undeclared", resolveDeadline, func(ctx context.Context) error {
		for _, c := range of {
			u.recovery.Step("find undeclared disks of a container", func() { u.compareUse(ctx, c) })
		}
		return ctx.Err()
	})
	if err != nil && ctx.Err() == nil {
		u.log.WithError(err).WithField("cgroup", g.cgroup).Warn("Finding undeclared disks failed for some containers")
	}
}

// suspects returns those of some containers of the state whose use of undeclared disks may have changed. It reads no file: unread is a
// cgroup whose counters have to be read first.
func (r *sharedReads) suspects(of []*container) (out []containerRef, unread string) {
	for _, c := range of {
		may := c.use.seen == uncompared || c.use.failure != nil
		if !may {
			if may, unread = r.counters.MayDiffer(c.cgroup, &c.disks.Facts, c.use.seen); unread != "" {
				return nil, unread
			}
		}
		if may {
			out = append(out, c.ref)
		}
	}
	return out, ""
}

func (u *undeclared) suspectsOf(g groupIdentity) []containerRef {
	for {
		out, unread := u.suspectsNow(g)
		if unread == "" {
			return out
		}
		u.counters.Read(unread)
	}
}

func (u *undeclared) suspectsNow(g groupIdentity) (_ []containerRef, unread string) {
	s := u.state.Lock()
	defer u.state.Unlock()
	return u.suspects(g.in(s).covering())
}

// covering returns the containers of a group for which coversUndeclared holds.
func (g *group) covering() (out []*container) {
	for _, c := range g.all() {
		if c.coversUndeclared() {
			out = append(out, c)
		}
	}
	return out
}

func (e *environment) readIOBytes(cgroup string) ([]blkio.DevBytes, error) {
	text, err := e.cgroups.Cgroup(cgroup).ReadHeld("io.stat", make([]byte, 0, 4096))
	if err != nil {
		return nil, err
	}
	return blkio.ParseIOBytes(string(text))
}

// compareUse compares the I/O of a container with its declared disks. It reports whether its limits have to be
// decided or written again.
func (u *undeclared) compareUse(ctx context.Context, c containerRef) bool {
	old := u.snapshot(c)
	if !old.coversUndeclared() {
		return false
	}
	stats, err := u.cgroups.Cgroup(old.cgroup).ReadIOStat()
	if errors.Is(err, blkio.ErrGone) || errors.Is(err, blkio.ErrNotSupported) {
		return false // it has ended, or the controller is not enabled yet
	}
	var found inventory.Usage
	if err == nil {
		var starred map[blkio.Dev]bool
		if old.use.seen == uncompared {
			starred = u.starred(&old)
		}
		found, err = u.stacks.FindUndeclared(ctx, &old.disks.Facts, old.use.seen, stats, starred)
	}
	if ctx.Err() != nil {
		return false
	}
	if err == nil {
		old.logUndeclared(u.log, found.Undeclared, stats)
	}
	return u.noteUse(c, &found, err)
}

// starred returns the disks that an earlier process has limited for a "*" of a container or of its pod, nil for none.
func (u *undeclared) starred(c *snapshot) (out map[blkio.Dev]bool) {
	s := u.state.Lock()
	defer u.state.Unlock()
	var own policy.Settings
	if c.recalled != nil {
		own = c.recalled.granted.Settings
	}
	out = map[blkio.Dev]bool{}
	for _, of := range []policy.Settings{own, c.pod.group.in(s).recorded.granted.Settings} {
		for _, x := range of {
			if x.Source.IsStar {
				out[x.Dev] = true
			}
		}
	}
	return out
}

// noteUse notes the result of a comparison. It reports whether limits have to be decided or written again.
func (u *undeclared) noteUse(of containerRef, found *inventory.Usage, err error) (changed bool) {
	s := u.state.Lock()
	defer u.state.Unlock()
	c := of.In(s)
	g := c.pod.group.in(s)
	if err != nil || c.use.failure != nil {
		g.told.Look()
	}
	if err != nil { // the earlier result stays valid
		c.use.failure = err
		return false
	}
	changed = c.use.seen == uncompared || !slices.Equal(found.Undeclared, c.use.seen.Undeclared)
	if c.use = (undeclaredUse{seen: found}); changed {
		s.changed(g)
	}
	return changed
}

// logUndeclared logs those disks that the container was not known to use. The container is passed as it was
// before the comparison.
func (c *snapshot) logUndeclared(log logrus.FieldLogger, disks []blkio.Disk, stats map[blkio.Dev]blkio.Stat) {
	for _, d := range disks {
		if !slices.Contains(c.use.seen.Undeclared, d) {
			c.logger(log).WithFields(logrus.Fields{"disk": d.Name, "dev": d.Dev.String(), "used": stats[d.Dev].String()}).
				Info(`Limiting an undeclared disk`)
		}
	}
}

// For a disk that is plugged into a running virtual machine KubeVirt makes a second pod with the claim. The pod of the machine controls
// it, and does the I/O. So a pod that another pod controls lends that one its raw block claims: the limits that these bring along, and
// their disks, to which a "*" applies. What is lent only lowers a limit, and is not lent on.
//
// KubeVirt replaces the second pod when another disk is plugged in. So what was lent stays while the owner runs and the disk is there,
// until a lender has other limits for the disk. It is in the records of the owner's containers.
//
// Authors of pods decide how often other limits are lent. So the owner has a pace for that, beside the one for its edits: edits of its
// author do not keep out of force what is lent, for which a budget counts only the lender.

// lend has the owners of the pods of a group borrow what is lent to them now, and those of its pods that have borrowed before.
func (n *Node) lend(of groupIdentity) {
	for _, e := range n.lendNow(of) {
		n.log.WithField("pod", e.Of.Namespace+"/"+e.Of.Name).Info("Applying " + e.Note)
		n.note(e)
	}
}

func (n *Node) lendNow(of groupIdentity) (changed []notice.Event) {
	s := n.state.Lock()
	defer n.state.Unlock()
	var borrowing []*pod
	for _, p := range of.in(s).pods {
		if len(s.lentTo(p).Disks) > 0 {
			borrowing = append(borrowing, p)
		}
		l, _ := s.liveOf(p.uid, p.namespace, p.name)
		for _, owner := range s.byUID[l.owner.UID] {
			if s.lendsTo(p, owner) {
				borrowing = append(borrowing, owner)
			}
		}
	}
	for _, p := range borrowing {
		if e, isChanged := s.borrow(p, nil); isChanged {
			changed = append(changed, e)
		}
	}
	return changed
}

// borrow has a pod borrow what running pods lend to it, and on other disks what was lent before. Disks that are gone are left out of the
// latter. It returns an event if the pod has other limits by that. If too many changes came before, the next turn of the pod that is due
// makes this one.
func (s *state) borrow(p *pod, gone []blkio.Disk) (_ notice.Event, isChanged bool) {
	lenders := s.lenders(p)
	slices.SortFunc(lenders, func(a, b *pod) int { return cmp.Compare(a.arrival, b.arrival) }) // so are most of their disks then
	var all []policy.Lent
	for _, lender := range lenders {
		for _, c := range lender.containers {
			if c.mayRun() {
				all = append(all, c.decision.lends)
			}
		}
	}
	before, now := p.borrowed(), time.Now()
	next := policy.Together(all...).Over(s.lentTo(p).Without(gone))
	if next.Equal(before) {
		return notice.Event{}, false
	}
	if len(next.Limits) > 0 {
		s.concern(p.group.in(s))
	}
	if len(gone) == 0 && p.borrows.Due().After(now) {
		s.reconcileAt(p.group.in(s), p.borrows.Due())
		return notice.Event{}, false
	}
	p.borrows.Pay(now)
	p.lent.Store(&next)
	s.markDirty(p.group.in(s))
	return p.borrowedEvent(&next), !p.isObserved() && !slices.Equal(next.Limits, before.Limits)
}

// isObserved reports whether a container of the pod was decided in mode observe.
func (p *pod) isObserved() bool {
	return slices.ContainsFunc(p.containers, func(c *container) bool {
		return c.decision.policy != nil && c.decision.policy.Mode() == policy.ModeObserve
	})
}

func (p *podIdentity) borrowedEvent(now *policy.Lent) notice.Event {
	names := map[blkio.Dev]string{}
	for _, d := range now.Disks {
		names[d.Dev] = d.Name
	}
	note := "limits of claims that its attachment pods lend: " + textOf(policy.Desired{Settings: now.Limits, Disks: names})
	return notice.Event{Of: p.named(), Reason: podevent.Changed, Key: podevent.KeyOf(note), Note: note}
}

// dropLent has the pods of a group forget what was lent to them on disks that were removed from the node.
func (n *Node) dropLent(of groupIdentity) {
	gone := slices.DeleteFunc(n.lentDisks(of), func(d blkio.Disk) bool { return !n.storage.Device(d.Dev).Missing })
	if len(gone) > 0 {
		n.forgetLent(of, gone)
	}
}

func (n *Node) forgetLent(of groupIdentity, gone []blkio.Disk) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, p := range of.in(s).pods {
		s.borrow(p, gone) // without an event: the limits have left with the disks
	}
}

func (n *Node) lentDisks(of groupIdentity) (out []blkio.Disk) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, p := range of.in(s).pods {
		out = append(out, p.borrowed().Disks...)
	}
	return out
}
