package node

import (
	"errors"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// remainingLimits returns the limits on writes that a container has now.
func remainingLimits(c *snapshot) policy.Settings {
	out := slices.Clone(c.decision.desired.Settings.WriteLimits()) // others read those meanwhile
	for i := range out {
		out[i].Source = policy.Source{} // a source takes room in the record
	}
	return out
}

// noteExit notes the end of a container, and has the reconciler record it. lifted is true if none of its limits
// are left.
func (t *podTable) noteExit(c *snapshot, lifted bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	s.noteExit(c, lifted)
	s.markDirty(c.pod.group.in(s))
}

// noteExit notes the end of a container, once for each of its cgroups.
func (s *state) noteExit(c *snapshot, lifted bool) {
	ids := c.exit.cgroupIDs
	c.exit.cgroupIDs = nil
	if ids == nil || c.decision.policy != nil && c.decision.policy.Mode() == policy.ModeObserve {
		return
	}
	e := record.Exit{Container: c.name, CgroupIDs: ids, At: time.Now().UTC().Truncate(time.Second)}
	if !lifted {
		e.Limits = remainingLimits(c)
	}
	g := c.pod.group.in(s)
	g.recorded.exits = record.WithExits(g.recorded.exits, []record.Exit{e})
	s.changed(g)
}

// readPodRecord reads from the record of a pod which containers ended before this process started, and the limits that
// the pod was granted. It reads until that succeeds once. The caller holds the group's token.
func (a applier) readPodRecord(of groupIdentity) error {
	if a.pods.isPodRecordRead(of) {
		return nil
	}
	r, err := record.Read(a.cgroups.Cgroup(of.cgroup), record.KindPod)
	switch {
	case errors.Is(err, blkio.ErrGone):
		return nil // not created yet
	case err != nil && !errors.Is(err, record.ErrParse):
		return err
	}
	a.pods.notePodRecord(of, r)
	return nil
}

// notePodRecord notes the contents of a pod's record, nil if it has none.
func (t *podTable) notePodRecord(of groupIdentity, r *record.Record) {
	s := t.state.Lock()
	defer t.state.Unlock()
	g := of.in(s)
	g.recorded.read = true
	if r != nil {
		g.recorded.exits = record.WithExits(r.Exits, g.recorded.exits)
		if !g.recorded.isOutdated {
			g.recorded.granted = r.Granted()
			s.recount(g)
		}
	}
}

func (t *podTable) isPodRecordRead(g groupIdentity) bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	return g.in(s).recorded.read || g.cgroup == ""
}
