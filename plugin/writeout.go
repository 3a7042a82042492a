package plugin

import (
	"context"
	"errors"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// leaves is what is to be done when a container ends, as of the last look at it.
type leaves struct {
	limits  map[blkio.Dev]blkio.Limits // on its cgroup, to be lifted
	limited []blkio.Dev                // disks with a limit on writes, its own or the pod's
	volumes []volume                   // on these, to be synced
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

// add notes a filesystem that the container can write to.
func (l *leaves) add(b *blkio.Backing) {
	i := slices.IndexFunc(b.Disks, func(d blkio.Disk) bool { return slices.Contains(l.limited, d.Dev) })
	if i < 0 || b.Mountpoint == "" {
		return
	}
	if v := (volume{b.Mountpoint, b.Disks[i].Dev}); !slices.Contains(l.volumes, v) {
		l.volumes = append(l.volumes, v)
	}
}

// leavesOf looks for what a container can write to on disks with a limit on
// writes, its own or the pod's. The caller holds mu.
func leavesOf(c *container, own, pod map[blkio.Dev]blkio.Limits) leaves {
	out := leaves{limits: own, limited: writesLimited(own, pod)}
	if len(out.limited) == 0 {
		return out
	}
	out.add(&c.facts.Rootfs) // the kubelet keeps the layers of dead containers
	for i := range c.facts.Mounts {
		m := &c.facts.Mounts[i]
		if !m.ReadOnly && !m.Injected {
			out.add(&m.Backing)
		}
		for k := range m.Below { // read-only does not reach those
			out.add(&m.Below[k].Backing)
		}
	}
	out.more = len(c.beyond) > 0
	return out
}

// writesLimited are the disks with a limit on writes in any of these.
func writesLimited(of ...map[blkio.Dev]blkio.Limits) []blkio.Dev {
	var out []blkio.Dev
	for _, limits := range of {
		for dev, l := range limits {
			if limitsWrites(l) && !slices.Contains(out, dev) {
				out = append(out, dev)
			}
		}
	}
	return out
}

// beyond is a mount of which not all was looked up: only what a target means is.
type beyond struct {
	source      string // on the host
	self, below bool   // what is to be looked up: it, the mounts below it
}

// beyondTargets are the mounts that a container can write to, or below.
func beyondTargets(ctr *api.Container, facts *policy.Container) []beyond {
	var out []beyond
	for i, m := range ctr.GetMounts() {
		known := &facts.Mounts[i]
		b := beyond{
			source: m.GetSource(),
			self:   known.Backing.Reason == notAsked && !known.ReadOnly,
			below:  isBind(m) && slices.Contains(m.GetOptions(), "rbind"), // read-only does not reach those
		}
		if b.self || b.below {
			out = append(out, b)
		}
	}
	return out
}

// lookBeyond looks that up for a container that has ended: by then nobody waits
// for it, and what the container had is mounted still.
func (p *Plugin) lookBeyond(ctx context.Context, c *container) {
	if !c.leaves.more {
		return
	}
	found := make(chan leaves, 1) // a call that comes too late must not write to c
	err := p.passes.bounded(ctx, c.id, lookDeadline, func(ctx context.Context) error {
		if err := p.storage.Refresh(ctx); err != nil {
			return err
		}
		l := c.leaves
		l.volumes = slices.Clone(l.volumes)
		for _, m := range c.beyond {
			if err := p.addBeyond(ctx, &l, m); err != nil {
				return err
			}
		}
		l.more = false
		found <- l
		return nil
	})
	if err != nil {
		c.logger(p.log).WithError(err).Info("Not known what a container has left to write, its pod's limits stay")
		return
	}
	c.leaves = <-found
}

func (p *Plugin) addBeyond(ctx context.Context, l *leaves, m beyond) error {
	if m.self {
		b := p.storage.Resolve(ctx, m.source)
		if b.Err != nil {
			return b.Err
		}
		l.add(&b)
	}
	if m.below {
		for _, b := range p.storage.Submounts(ctx, m.source) {
			if b.Err != nil {
				return b.Err
			}
			l.add(&b)
		}
	}
	return ctx.Err()
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
		go p.tidy(ctx, c.pod.group) // who waits for another sync must not wait for this
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
			}
		})
	}
}

// tidyPatience is what one pod's turn is waited for: with a disk that does not
// answer, one may not end.
const tidyPatience = time.Minute

// tidy has the kernel let go of what the dead keep, pod by pod: it takes CPU time.
func (p *Plugin) tidy(ctx context.Context, g *group) {
	select {
	case p.exits.tidying <- struct{}{}:
		defer func() { <-p.exits.tidying }()
	case <-ctx.Done():
		return
	case <-time.After(tidyPatience):
		p.log.WithField("cgroup", g.cgroup).Warnf("Files of ended containers may stay theirs for longer: another pod's took more than %v", tidyPatience)
		return
	}
	p.dropCache(g)
	p.releaseDead(g)
}

// dropCache has the page cache of a pod forgotten in which nothing runs any more:
// pages that stay charged to the dead would keep their files from ever being
// anybody else's, such as the next pod's on the same volume.
func (p *Plugin) dropCache(g *group) {
	p.mu.Lock()
	v := newView(g)
	p.mu.Unlock()
	if !v.drained || v.shared || v.cgroup == "" || len(p.strangers(&v)) > 0 {
		return
	}
	err := p.cgroups.Cgroup(g.cgroup).DropCache()
	if err != nil && !errors.Is(err, blkio.ErrGone) && !errors.Is(err, blkio.ErrNotSupported) {
		p.log.WithError(err).WithField("cgroup", g.cgroup).Warn("The page cache of a pod that has ended stays, its files may stay a dead cgroup's")
	}
}

// releaseDead has files of dead cgroups given to living ones: that of a container
// that has been synced is dead or about to be, and its pod's may be, too.
func (p *Plugin) releaseDead(g *group) {
	if g.cgroup == "" || !p.releases() {
		return
	}
	// The root's directory is writable for nobody, without a capability.
	if err := p.cgroups.Cgroup(path.Dir(g.cgroup)).ReleaseDeadOwners(); err != nil {
		p.log.WithError(err).Warn("Files of ended containers may stay theirs for longer")
	}
}

// releases reports whether the kernel may be made to move the inodes of removed cgroups:
// the policy can ask for that on a kernel that is not known to contain the corrections.
func (p *Plugin) releases() bool {
	return p.kernel.Corrected() || p.policy.Load().Writeback.Repair == policy.RepairOn
}

// sayReleases logs what ended containers keep on such a kernel.
func (p *Plugin) sayReleases() {
	if !p.releases() {
		p.log.WithField("kernel", p.kernel.String()).
			Info("Files of ended containers stay theirs until the kernel releases them by itself (writeback.repair: true overrides this)")
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
	case c.refused, c.looked && c.leaves.nothing():
		delete(c.pod.group.unwritten, c)
	default:
		c.abandon()
	}
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
