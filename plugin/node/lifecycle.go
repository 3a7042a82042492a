package node

import "github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"

// handle makes the transition of an event of a container, and takes its actions. HandOver is left to the caller
// of WatchFired, which holds the open cgroup. All changes of a container's phase are made here.
func (s *state) handle(c *container, e lifecycle.Event) lifecycle.Actions {
	before := c.life.Phase()
	do, err := c.life.Handle(e)
	if err != nil {
		s.unexpected++
		return 0
	}
	g, now := c.pod.group.in(s), c.life.Phase()
	g.drain.Apply(c.id, do, c.writes())
	if do.Has(lifecycle.FindUndeclared) {
		c.use.pending = true
	}
	if do.Has(lifecycle.RecordExit) && !do.Has(lifecycle.HandOver) {
		s.noteExit(&c.snapshot, false)
	}
	if pod := c.pod.in(s); now == lifecycle.Absent && pod.containers[c.id] == c {
		delete(pod.containers, c.id)
		s.byCgroup.remove(c.cgroup, c)
	}
	s.recount(g)
	if do != 0 || before.MayRun() != now.MayRun() {
		s.changed(g)
	}
	return do
}

// writes returns whether limits apply to the writes of the container.
func (c *snapshot) writes() lifecycle.Writes {
	switch {
	case !c.exit.planned:
		return lifecycle.WritesUnknown
	case c.exit.plan.IsEmpty():
		return lifecycle.WritesUnlimited
	}
	return lifecycle.WritesLimited
}

// mayRun reports whether a process of the container may run.
func (c *snapshot) mayRun() bool { return c.life.Phase().MayRun() }

// isUnplaced reports whether a container has started and the plugin has seen no process of it.
func (c *snapshot) isUnplaced() bool { return c.cgroup != "" && c.life.Phase() == lifecycle.Starting }

// end closes a container in the drain.
func (s *state) end(g *group, id string, written bool) {
	g.drain.End(id, written)
	s.changed(g)
}
