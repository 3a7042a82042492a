package node

import (
	"slices"
	"time"

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

// noteExit notes the end of a container, once for each of its cgroups. lifted is true if none of its limits are left.
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
