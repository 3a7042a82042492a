package node

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

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
	return !g.recorded.read || slices.ContainsFunc(g.pods, func(p *pod) bool { return !p.restored })
}

// noteRecalled takes over the record of a pod, which is nil if there is none.
func (n *Node) noteRecalled(of groupIdentity, r *record.Record) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	if !g.recorded.read && r != nil { // otherwise the record may be one of this process
		g.recorded.exits, g.recorded.limits = record.WithExits(r.Exits, g.recorded.exits), limitsOf(r)
		granted := r.Granted()
		granted.Settings, granted.Lowered = granted.Settings.Carry(), granted.Lowered.Carry()
		g.recorded.granted = &granted
		s.recount(g)
	}
	g.recorded.read = true
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
