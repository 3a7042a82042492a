package plugin

import "context"

// A container that ended before its data was known to be on disk leaves the pod's limits
// in force: without them it would all be written at once. Its sync may have failed, or no
// event told of its end in time. What is left to write, the kernel itself counts: the
// pages of the pod's cgroup, with those of the cgroups that were removed below it.

// findClean looks for pods of which nothing runs any more and that have nothing left to
// write, and lets their limits go. The kernel's count may be two seconds old
// (docs/quirks.md), so that two passes have to find it.
func (p *Plugin) findClean(ctx context.Context, groups []*group) {
	for _, g := range groups {
		changes, waits := p.waitsForData(g)
		if !waits {
			continue
		}
		if left, err := p.cgroups.Cgroup(g.cgroup).ReadUnwritten(); err != nil || left > 0 {
			continue // without the memory controller the limits stay
		}
		if p.noteClean(g, changes) {
			go p.tidy(ctx, g)
		}
	}
}

// waitsForData reports whether nothing but what ended containers left keeps a group from
// being drained, and its number of changes.
func (p *Plugin) waitsForData(g *group) (changes int, waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return g.changes, g.cgroup != "" && g.begun && g.leftovers && len(g.unwritten) == 0
}

// noteClean notes that there was nothing left to write when the group had this number of
// changes, and reports whether it is drained by that.
func (p *Plugin) noteClean(g *group, changes int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.changes != changes {
		return false // a container came or went meanwhile
	}
	if g.cleanAt != changes {
		g.cleanAt = changes
		return false
	}
	g.leftovers = false
	p.markDirty(g)
	return true
}
