package node

import (
	"cmp"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// For a disk that is plugged into a running virtual machine KubeVirt makes a second pod with the claim. The pod of the machine controls
// it, and does the I/O. So a pod that another pod controls lends that one its raw block claims: the limits that these bring along, and
// their disks, to which a "*" applies. What is lent only lowers a limit, and is not lent on.
//
// KubeVirt replaces the second pod when another disk is plugged in. So what was lent stays while the owner runs and the disk is there,
// until a lender has other limits for the disk. It is in the records of the owner's containers.
//
// Authors of pods decide how often other limits are lent. So the owner has a pace for that, beside the one for its edits: edits of its
// author do not keep out of force what is lent, for which a budget counts only the lender.

// lendsTo reports whether a pod lends to another one. The author of a pod can name any owner, so only one of the same namespace counts,
// by its UID and its name.
func (s *state) lendsTo(lender, owner *pod) bool {
	l, _ := s.liveOf(lender.uid, lender.namespace, lender.name)
	return l.owner == podfacts.Owner{Name: owner.name, UID: owner.uid, IsPod: true} && owner.uid != "" && owner.uid != lender.uid && owner.namespace == lender.namespace &&
		!owner.group.in(s).shared()
}

// markLenders has the reconciler lend to a pod that joins what its lenders have lent to an earlier sandbox of it.
func (s *state) markLenders(owner *pod) {
	for _, other := range s.namespaces[owner.namespace].pods {
		if s.lendsTo(other, owner) {
			s.markDirty(other.group.in(s))
		}
	}
}

// lend has the owners of the pods of a group borrow what is lent to them now, and those of its pods that have borrowed before.
func (n *Node) lend(of groupIdentity) {
	for _, e := range n.lendNow(of) {
		n.log.WithField("pod", e.of.Namespace+"/"+e.of.Name).Info("Applying " + e.note)
		n.note(e)
	}
}

func (n *Node) lendNow(of groupIdentity) (changed []event) {
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
func (s *state) borrow(p *pod, gone []blkio.Disk) (_ event, isChanged bool) {
	var lenders []*pod
	for _, other := range s.namespaces[p.namespace].pods {
		if s.lendsTo(other, p) {
			lenders = append(lenders, other)
		}
	}
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
		return event{}, false
	}
	if len(next.Limits) > 0 {
		s.concern(p.group.in(s), false)
	}
	if len(gone) == 0 && p.borrows.due().After(now) {
		s.reconcileAt(p.group.in(s), p.borrows.due())
		return event{}, false
	}
	p.borrows.pay(now)
	p.lent.Store(&next)
	s.markDirty(p.group.in(s))
	return p.borrowedEvent(&next), !p.isObserved() && !slices.Equal(next.Limits, before.Limits)
}

// lentTo returns what is lent to any sandbox of a pod. A later one has it too, and keeps it when the earlier one is removed.
func (s *state) lentTo(p *pod) policy.Lent {
	out := p.borrowed()
	for _, other := range p.group.in(s).pods {
		if other != p && other.uid == p.uid && other.lent.Load() != nil {
			out = out.Over(other.borrowed())
		}
	}
	return out
}

// isObserved reports whether a container of the pod was decided in mode observe.
func (p *pod) isObserved() bool {
	return slices.ContainsFunc(p.containers, func(c *container) bool {
		return c.decision.policy != nil && c.decision.policy.Mode() == policy.ModeObserve
	})
}

// borrowed returns what is lent to the pod.
func (p *podIdentity) borrowed() policy.Lent {
	if lent := p.lent.Load(); lent != nil {
		return *lent
	}
	return policy.Lent{}
}

func (p *podIdentity) borrowedEvent(now *policy.Lent) event {
	names := map[blkio.Dev]string{}
	for _, d := range now.Disks {
		names[d.Dev] = d.Name
	}
	note := "limits of claims that its attachment pods lend: " + textOf(policy.Desired{Settings: now.Limits, Disks: names})
	return event{p.named(), podevent.Changed, podevent.KeyOf(note), note}
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

// inForce returns what the container is to have: what it is granted, and no more than what is lent to its pod.
func (c *snapshot) inForce() policy.Desired {
	return c.decision.policy.Borrow(c.decision.desired, c.pod.lent.Load())
}

// undeclared returns the disks that no mount or device of the container declares: those that it uses, and those that are lent.
func (c *snapshot) undeclared() []blkio.Disk {
	lent := c.pod.lent.Load()
	if lent == nil {
		return c.use.seen.Undeclared
	}
	return policy.Together(policy.Lent{Disks: lent.Disks}, policy.Lent{Disks: c.use.seen.Undeclared}).Disks
}

// setRecalled notes the record of an earlier process. What was lent then counts on those disks on which nothing is lent now.
func (c *container) setRecalled(r *recalled) {
	if c.recalled == nil && r != nil && len(r.lent.Disks) > 0 {
		lent := c.pod.borrowed().Over(r.lent)
		c.pod.lent.Store(&lent)
	}
	c.recalled = r
}
