package node

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// A bystander's pod can have limits: an earlier process had another policy, with a class for the pod. They
// are found by the records on the cgroups. Most pods never had any, so that no event waits for a read.

// admitUnread looks at those bystanders that could not be read so far, and logs an error that lasts.
func (n *Node) admitUnread(ctx context.Context) {
	err := n.admitRecorded(ctx, n.pods.stillUnread())
	if n.listing.unread.Due(time.Now(), err) {
		n.log.WithError(err).Warn("Reading the records of pods without limits failed, retrying: limits of an earlier policy may stay")
	}
}

// admitRecorded is findRecorded within a bound.
func (n *Node) admitRecorded(ctx context.Context, of []Sandbox) error {
	if len(of) == 0 {
		return nil
	}
	return n.inFlight.passes.For(ctx, "bystanders", passDeadline, func(ctx context.Context) error { return n.findRecorded(ctx, of) })
}

// findRecorded makes those bystanders part of the state whose cgroups have a record. The pass removes
// their limits.
func (n *Node) findRecorded(ctx context.Context, of []Sandbox) error {
	var unread error
	for i := range of {
		sb := &of[i]
		cgroup, err := cgroupfs.PodCgroup(sb.Cgroup)
		if err != nil || cgroup == "" {
			continue
		}
		switch found, err := n.hasRecord(cgroup); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case found:
			pod, cgroup := n.describePod(sb)
			n.pods.admitted(pod, cgroup, true)
		case err == nil, errors.Is(err, blkio.ErrGone), errors.Is(err, blkio.ErrNotSupported): // by the kernel: then there are no records
			if n.pods.noteRead(sb.ID) {
				n.log.WithField("pod", sb.Namespace+"/"+sb.Name).
					Warn("Labels of a pod without limits are too long to keep: a new policy matches it without them until a container of it is created")
			}
		default:
			unread = cmp.Or(unread, err)
		}
	}
	return unread
}

// hasRecord reports whether the cgroup of a pod has a record of the pod, or of a container.
func (n *Node) hasRecord(cgroup string) (bool, error) {
	cg := n.cgroups.Cgroup(cgroup)
	pod, err := cg.ReadXattr(record.Xattr)
	if pod != nil {
		return true, nil
	}
	containers, unlisted := cg.ListAbove(record.Xattr)
	return len(containers) > 0, cmp.Or(err, unlisted)
}

// findRemoved forgets bystanders whose cgroup was removed without an event, as findGone does with other
// pods.
func (n *Node) findRemoved() {
	for _, sb := range n.pods.bystanding() {
		if cgroup, err := cgroupfs.PodCgroup(sb.Cgroup); err == nil && cgroup != "" && !n.cgroups.Cgroup(cgroup).Exists() {
			n.pods.forgetBystander(sb.ID)
		}
	}
}

// forgetBystander forgets a sandbox of no concern.
func (t *podTable) forgetBystander(id string) {
	s := t.state.Lock()
	defer t.state.Unlock()
	s.forgetBystander(id)
}

// noteRead notes that the cgroup of a bystander has no record. It reports whether its labels are not kept.
func (t *podTable) noteRead(id string) (isCut bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	b := s.bystanders[id]
	if b == nil {
		return false
	}
	b.isRead = true
	return b.isCut
}

// takeUnread returns the bystanders that came since the last call.
func (t *podTable) takeUnread() []Sandbox {
	s := t.state.Lock()
	defer t.state.Unlock()
	defer clear(s.unread)
	var out []Sandbox
	for id := range s.unread {
		out = append(out, s.bystanders[id].sandbox)
	}
	return out
}

// stillUnread returns the bystanders whose cgroups could not be read so far.
func (t *podTable) stillUnread() []Sandbox {
	s := t.state.Lock()
	defer t.state.Unlock()
	defer clear(s.unread)
	var out []Sandbox
	for _, b := range s.bystanders {
		if !b.isRead {
			out = append(out, b.sandbox)
		}
	}
	return out
}
