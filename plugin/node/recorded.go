package node

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// The pod of a bystander can have limits from an earlier process whose policy had a class for the pod. The
// plugin finds them by the records on the cgroups, and by the marks of the containers. A container that has not
// started under that process has no record. Most pods never had any limit, so no event waits for such a read.

// admitUnread reads the records of those bystanders that could not be read so far, and logs an error that
// lasts.
func (n *Node) admitUnread(ctx context.Context) {
	err := n.admitRecorded(ctx, n.takeUnread(true))
	if n.listing.recordProblem.Due(time.Now(), err) {
		n.log.WithError(err).Warn("Reading the records of pods without limits failed, retrying: limits of an earlier policy may stay")
	}
}

// admitRecorded calls findRecorded with a deadline.
func (n *Node) admitRecorded(ctx context.Context, of []Sandbox) error {
	if len(of) == 0 {
		return nil
	}
	return n.inFlight.passes.For(ctx, "bystanders", passDeadline, func(ctx context.Context) error { return n.findRecorded(ctx, of) })
}

// findRecorded makes those bystanders part of the state whose cgroups have a record. The next pass removes
// their limits.
func (n *Node) findRecorded(ctx context.Context, of []Sandbox) error {
	var unread error
	for i := range of {
		sb := &of[i]
		switch found, err := n.hasRecord(sb); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case found, n.hasOwnSpec(sb.ID):
			pod, cgroup := n.describePod(sb)
			n.admitBystander(pod, cgroup, true)
		case err == nil, errors.Is(err, blkio.ErrGone), errors.Is(err, blkio.ErrNotSupported): // the kernel does not support them, so there are no records
			if n.noteRead(sb.ID) {
				sb.warnCut(n.log)
			}
		default:
			unread = cmp.Or(unread, err)
		}
	}
	return unread
}

// hasRecord reports whether the cgroup of a pod has a record of the pod, or of a container.
func (n *Node) hasRecord(sb *Sandbox) (bool, error) {
	cgroup, err := cgroupfs.PodCgroup(sb.Cgroup)
	if err != nil || cgroup == "" {
		return false, nil // each pod with a record has a cgroup
	}
	cg := n.cgroups.Cgroup(cgroup)
	pod, err := cg.ReadXattr(record.Xattr)
	if pod != nil {
		return true, nil
	}
	containers, unlisted := cg.ListAbove(record.Xattr)
	return len(containers) > 0, cmp.Or(err, unlisted)
}

// hasOwnSpec reports whether the OCI spec of a container of a bystander has limits of an earlier process.
func (n *Node) hasOwnSpec(id string) bool {
	s := n.state.Lock()
	defer n.state.Unlock()
	b := s.bystanders[id]
	return b != nil && slices.ContainsFunc(b.containers, (*bystandingCtr).hasOwnSpec)
}

func (c *bystandingCtr) hasOwnSpec() bool { return len(plan.ReadSpec(c.ID, c.Mark, c.Unified).Own) > 0 }

// findRemovedBystanders forgets bystanders whose cgroup was removed without an event. findRemovedPods does the same for the pods
// of the state.
func (n *Node) findRemovedBystanders() {
	for _, sb := range n.bystanding() {
		if cgroup, err := cgroupfs.PodCgroup(sb.Cgroup); err == nil && cgroup != "" && !n.cgroups.Cgroup(cgroup).Exists() {
			n.dropBystander(sb.ID)
		}
	}
}

// dropBystander forgets a bystander.
func (n *Node) dropBystander(id string) {
	s := n.state.Lock()
	defer n.state.Unlock()
	s.forgetBystander(id)
}

// noteRead notes that the cgroup of a bystander has no record. It reports whether some of its labels were
// dropped.
func (n *Node) noteRead(id string) (isCut bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	delete(s.unreadBystanders, id)
	b := s.bystanders[id]
	return b != nil && b.isCut
}

// takeUnread returns the bystanders whose cgroups have not been read: all of them, or those that were added
// since the last call.
func (n *Node) takeUnread(all bool) []Sandbox {
	s := n.state.Lock()
	defer n.state.Unlock()
	var out []Sandbox
	for id, isNew := range s.unreadBystanders {
		if isNew || all {
			s.unreadBystanders[id] = false
			out = append(out, s.bystanders[id].sandbox)
		}
	}
	return out
}
