package plugin

import (
	"cmp"
	"context"
	"path"
	"slices"
	"sync/atomic"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// leaves is what is to be done when a container ends, as of the last look at it.
type leaves struct {
	limits  map[blkio.Dev]blkio.Limits // on its cgroup, to be lifted
	volumes []volume                   // to be synced
	// more: it can write to what was not looked up, so that there may be more
	// left to write than a sync of the volumes writes out.
	more bool
}

// volume is a filesystem by one of its mountpoints, and a disk that it is on.
type volume struct {
	path string
	disk blkio.Dev
}

func (l *leaves) nothing() bool { return len(l.volumes) == 0 && !l.more }

// leavesOf looks for what a container can write to on disks with a limit on
// writes, its own or the pod's. The caller holds mu.
func leavesOf(c *container, own, pod map[blkio.Dev]blkio.Limits) leaves {
	out := leaves{limits: own}
	limited := func(d blkio.Disk) bool { return limitsWrites(own[d.Dev]) || limitsWrites(pod[d.Dev]) }
	add := func(b *blkio.Backing) {
		if i := slices.IndexFunc(b.Disks, limited); i >= 0 && b.Mountpoint != "" {
			out.volumes = append(out.volumes, volume{b.Mountpoint, b.Disks[i].Dev})
		}
	}
	add(&c.facts.Rootfs) // the kubelet keeps the layers of dead containers
	for i := range c.facts.Mounts {
		m := &c.facts.Mounts[i]
		if !m.ReadOnly && !m.Injected {
			add(&m.Backing)
			out.more = out.more || m.Backing.Reason == notAsked
		}
		for k := range m.Below { // read-only does not reach those
			add(&m.Below[k].Backing)
		}
	}
	slices.SortFunc(out.volumes, func(a, b volume) int { return cmp.Or(cmp.Compare(a.path, b.path), a.disk.Compare(b.disk)) })
	out.volumes = slices.Compact(out.volumes)
	out.more = out.more && (anyLimitsWrites(own) || anyLimitsWrites(pod))
	return out
}

func anyLimitsWrites(of map[blkio.Dev]blkio.Limits) bool {
	for _, l := range of {
		if limitsWrites(l) {
			return true
		}
	}
	return false
}

func limitsWrites(l blkio.Limits) bool {
	l = finite(l)
	return l[blkio.Wbps] != blkio.Unset || l[blkio.Wiops] != blkio.Unset
}

// writeOut has a container's volumes synced. Once they all are it has nothing left
// to write, if they are all that it could write to.
func (p *Plugin) writeOut(ctx context.Context, c *container, l leaves) {
	var left, failed atomic.Int64
	left.Store(int64(len(l.volumes)))
	done := func() {
		if l.more || failed.Load() > 0 {
			p.abandon(c)
		} else {
			p.writtenOut(c)
		}
	}
	if len(l.volumes) == 0 {
		done()
		return
	}
	for _, v := range l.volumes {
		p.exits.syncs.soon(ctx, v, func(err error) {
			if err != nil {
				failed.Add(1)
			}
			if left.Add(-1) == 0 {
				done()
				p.releaseDead(c.pod.group)
			}
		})
	}
}

// releaseDead has files of dead cgroups given to living ones: that of a container
// that has been synced is dead or about to be, and its pod's may be, too.
func (p *Plugin) releaseDead(g *group) {
	if g.cgroup == "" {
		return
	}
	// The root's directory is writable for nobody, without a capability.
	if err := p.cgroups.Cgroup(path.Dir(g.cgroup)).ReleaseDeadOwners(); err != nil {
		p.log.WithError(err).Warn("Files of ended containers may stay theirs for longer")
	}
}

func (p *Plugin) writtenOut(c *container) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(c.pod.group.unwritten, c)
	p.markDirty(c.pod.group)
}

// abandon notes that what a container has left to write is not known to be on its
// disk, and never will.
func (p *Plugin) abandon(c *container) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.abandon()
}

// abandon is of a container that has ended. The caller holds Plugin.mu.
func (c *container) abandon() {
	g := c.pod.group
	if g.unwritten[c] {
		delete(g.unwritten, c)
		g.leftovers = true
		g.changed()
	}
}

// unheld abandons a container of whose end nobody else will tell. The caller holds
// Plugin.mu.
func (c *container) unheld() {
	switch {
	case c.held || c.handing:
	case c.looked && c.leaves.nothing():
		delete(c.pod.group.unwritten, c)
	default:
		c.abandon()
	}
}

// neverRan takes back begin, for a container whose start was refused.
func (p *Plugin) neverRan(c *container) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(c.pod.group.unwritten, c)
}

// forget takes a container out of its pod. The caller holds Plugin.mu.
func (c *container) forget() {
	c.noteExit(false)
	if !c.handing { // now nobody finds it by its cgroup any more
		c.held = false
		c.unheld()
	}
	delete(c.pod.containers, c.id)
}
