package node

import (
	"errors"
	"fmt"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// A restarted plugin gets the annotations and labels of a pod from the runtime, as they were when the sandbox was made. What an
// earlier process has granted, and what only the API server knows, is in the records on the cgroups. Each record is read once: that
// of a pod before its first decision, and that of a container with the first search for its disks.

// former is what an earlier process has granted to a container, by its records.
type former struct {
	read       bool           // false before the records were read
	granted    policy.Desired // to the container
	own, total policy.Settings
	starred    map[blkio.Dev]bool         // disks that were limited for a "*"
	lowest     map[blkio.Dev][]blkio.Disk // below the devices of these limits
	by         *policy.Pod                // the policy whose decision lowest is about; nil if it is about the records
	unvetted   bool                       // the budget had no room for it, or was not asked
}

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
	for _, p := range g.pods {
		if !p.restored {
			return true
		}
	}
	return !g.recorded.read
}

// noteRecalled takes over the record of a pod, which is nil if there is none.
func (n *Node) noteRecalled(of groupIdentity, r *record.Record) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	if !g.recorded.read && r != nil { // otherwise the record may be one of this process
		g.recorded.exits = record.WithExits(r.Exits, g.recorded.exits)
		if !g.recorded.isOutdated {
			g.recorded.granted = r.Granted()
			s.recount(g)
		}
	}
	g.recorded.read = true
	for _, p := range g.pods {
		if !p.restored {
			p.restored = true
			s.restore(p, r)
		}
	}
}

// restore takes over an edit and limits from a record.
func (s *state) restore(p *pod, r *record.Record) {
	if r == nil || r.UID != p.uid {
		return
	}
	if !p.isNew { // otherwise all containers of the sandbox are known
		p.former = r.Granted()
	}
	if r.Edit == nil {
		return
	}
	now := p.request.now.Load()
	if next := now.Restored(r.Edit, p.id); next != now {
		s.replaceRequest(p, next)
		s.revise(p)
	}
}

// recallContainer reads the records of a container and of its pod that an earlier process left, unless that has succeeded before.
func (n *Node) recallContainer(c *snapshot) error {
	if c.former.read || c.cgroup == "" {
		return nil
	}
	own, err := n.readRecord(c.cgroup, record.KindContainer)
	if err != nil && !errors.Is(err, blkio.ErrGone) {
		return fmt.Errorf("read the record of the container: %w", err)
	}
	var total *record.Record
	if of := c.pod.group.cgroup; of != "" {
		if total, err = n.readRecord(of, record.KindPod); err != nil && !errors.Is(err, blkio.ErrGone) {
			return fmt.Errorf("read the record of the pod: %w", err)
		}
	}
	f := former{lowest: n.lowest(rates(own), rates(total), c.spec.Values()), read: true, granted: own.Granted(), own: rates(own), total: rates(total), unvetted: own != nil && own.Unvetted}
	for _, r := range []*record.Record{own, total} {
		if r == nil || r.Observed {
			continue
		}
		for _, x := range r.Settings {
			if x.Source.IsStar {
				if f.starred == nil {
					f.starred = map[blkio.Dev]bool{}
				}
				f.starred[x.Dev] = true
			}
		}
	}
	c.former = f
	return nil
}

// rates returns the limits of a record, without the backstop. Observed ones count, as those of an observed
// container that was decided do.
func rates(r *record.Record) policy.Settings {
	if r == nil {
		return nil
	}
	return r.Settings.Where(func(s policy.Setting) bool { return s.Key.IsRate() && s.Source.Kind != policy.FromBackstop })
}
