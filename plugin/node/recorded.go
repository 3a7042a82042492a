package node

import (
	"cmp"
	"context"
	"errors"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// The pod of a bystander can have limits from an earlier process whose policy had a class for the pod. The
// plugin finds them by the records on the cgroups, and by the marks of the containers. A container that has not
// started under that process has no record. Most pods never had any limit, so no event waits for such a read.

// readBystanders reads the records of bystanders up to a reading, with a deadline.
func (n *Node) readBystanders(ctx context.Context, upTo reading) error {
	of := n.takeUnread(upTo)
	if len(of) == 0 {
		return nil
	}
	return n.inFlight.passes.For(ctx, "bystanders", passDeadline, func(ctx context.Context) error { return n.findRecorded(ctx, of) })
}

// findRecorded has something concern those bystanders whose cgroups have a record. The next pass removes
// their limits.
func (n *Node) findRecorded(ctx context.Context, of []groupIdentity) error {
	var failed error
	for _, g := range of {
		found, err := n.hasRecord(g)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, blkio.ErrGone) || errors.Is(err, blkio.ErrNotSupported) { // the kernel does not support them, so there are no records
			err = nil
		}
		if n.noteRead(g, found, err) {
			failed = cmp.Or(failed, err)
		}
	}
	return failed
}

// hasRecord reports whether the cgroup of a pod has a record of the pod, or of a container.
func (n *Node) hasRecord(g groupIdentity) (bool, error) {
	if g.cgroup == "" {
		return false, nil // each pod with a record has a cgroup
	}
	cg := n.cgroups.Cgroup(g.cgroup)
	pod, err := cg.ReadXattr(record.Xattr)
	if pod != nil {
		return true, nil
	}
	containers, unlisted := cg.ListAbove(record.Xattr)
	return len(containers) > 0, cmp.Or(err, unlisted)
}

// noteRead notes whether bystanders have a record, or the OCI spec of a container has limits of an earlier process. It reports whether
// that is still unknown because of an error.
func (n *Node) noteRead(of groupIdentity, recorded bool, err error) (unknown bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	for _, p := range g.pods {
		for _, c := range p.containers {
			recorded = recorded || len(c.spec.Own) > 0
		}
	}
	switch {
	case recorded:
		s.concern(g, true)
	case err != nil:
		return !s.concerns(g)
	case s.bystanders[g] == unreadable:
		s.bystanders[g] = unrecorded
	}
	return false
}

// takeUnread returns the bystanders up to a reading. Until they are read they count as unreadable.
func (n *Node) takeUnread(upTo reading) (out []groupIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for g, known := range s.bystanders {
		if known <= upTo {
			s.bystanders[g] = unreadable
			out = append(out, g.groupIdentity)
		}
	}
	return out
}

// findRemovedBystanders forgets the bystanders without a cgroup.
func (n *Node) findRemovedBystanders() {
	for _, p := range n.bystanding() {
		n.findRemovedPods(p.group)
	}
}
