package plugin

import (
	"fmt"

	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
)

// findProcess looks for the first process of a container that starts. Until there is one,
// the exit watch would take the cgroup for that of a container that has ended.
func (p *Plugin) findProcess(c *container) {
	if !p.isUnplaced(c) {
		return
	}
	if populated, err := p.cgroups.Cgroup(c.cgroup).Populated(); err != nil || populated {
		p.notePopulated(c) // also if it cannot be known: the cgroup was written to
	}
}

// notePopulated notes that there is a process in the cgroup of a container.
func (p *Plugin) notePopulated(c *container) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handle(c, lifecycle.CgroupPopulated)
}

// checkPlaced decides why a container that runs, as far as is known, has no cgroup, or no
// process in it. Either it has ended, and its StopContainer event is under way or was
// missed, or the runtime has not placed it there yet. That is an error where something is
// to be written there.
func (p *Plugin) checkPlaced(c *container, r *enforce.Result, gone bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if gone {
		p.handle(c, lifecycle.CgroupMissing)
	}
	switch starts := c.life.Phase() == lifecycle.Starting; {
	case starts && !r.Target.Record.Empty():
		return fmt.Errorf("limit container %s: its cgroup has no process yet", c.name)
	case gone && !starts:
		p.markDirty(c.pod.group)
	}
	return nil
}
