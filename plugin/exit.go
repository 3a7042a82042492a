package plugin

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Between the end of a container's last process and the removal of its cgroup
// are some 20 ms, and StopContainer comes after that (FACTS 5.15, 5.16). In this
// time its limits have to go: what it has queued would drain at them, out of
// reach, and its successor's writes to the same files with it. What the pod may
// do as a whole holds on, so that there is no burst.

const (
	// liftWait is for a writer of the pod's cgroups, who could put the limits
	// back. It is short: the cgroup is about to go.
	liftWait = 5 * time.Millisecond
)

// exits is what hands over the data of containers that end.
type exits struct {
	watch *blkio.EmptyWatch // nil before Run, and where it cannot be had
	syncs syncer
	// won and lost are the races with the removal of a cgroup; failed are the
	// limits that could not be lifted for another reason.
	won, lost, failed atomic.Int64
}

// watchExits has limits lifted at the end of containers until ctx ends.
func (p *Plugin) watchExits(ctx context.Context) {
	watch, err := blkio.NewEmptyWatch()
	if err != nil {
		p.log.WithError(err).Error("The limits of containers that end are not lifted")
		return
	}
	p.mu.Lock()
	p.exits.watch = watch
	for _, g := range p.groups {
		p.markDirty(g) // to be held, those that are known already
	}
	p.mu.Unlock()
	if err := watch.Run(ctx, p.urgent, func(held *blkio.Held) { p.exited(ctx, held) }); ctx.Err() == nil {
		p.log.WithError(err).Error("The limits of containers that end are not lifted any more")
	}
}

func (p *Plugin) urgent(err error) {
	if err != nil {
		p.log.WithError(err).Info("Without CAP_SYS_NICE: on a busy node some containers' cgroups are gone before their limits can be lifted")
	}
}

// hold keeps a container's cgroup within reach that a limit on writes concerns, be
// it the pod's. It is done again with each closer look, which costs nothing when
// it is held already.
func (p *Plugin) hold(c *change, pod *target) {
	if c.target == nil || !p.policy.Load().Writeback.HandOver {
		return
	}
	p.mu.Lock()
	watch := p.exits.watch
	c.owner.volumes = toSync(c.owner, c.want, pod.want)
	idle := len(c.owner.volumes) == 0
	p.mu.Unlock()
	if watch == nil || len(c.want) == 0 && idle {
		return
	}
	if err := watch.Add(c.cg); err != nil && !errors.Is(err, blkio.ErrGone) {
		p.log.WithError(err).WithField("cgroup", c.cg.Path()).Warn("The limits of a container cannot be lifted when it ends")
	}
}

// toSync are the mountpoints of a container's volumes on disks with a limit on
// writes. The writable layer is none: it goes with the container.
func toSync(c *container, limits ...map[blkio.Dev]blkio.Limits) []string {
	limited := func(d blkio.Disk) bool {
		return slices.ContainsFunc(limits, func(of map[blkio.Dev]blkio.Limits) bool {
			return finite(of[d.Dev])[blkio.Wbps] != blkio.Unset || finite(of[d.Dev])[blkio.Wiops] != blkio.Unset
		})
	}
	var out []string
	for _, m := range c.facts.Mounts {
		if !m.ReadOnly && !m.Injected && m.Backing.Mountpoint != "" && slices.ContainsFunc(m.Backing.Disks, limited) {
			out = append(out, m.Backing.Mountpoint)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// exited lifts the limits of a container whose cgroup is empty. That comes before
// all else: every instruction in between is in a race.
func (p *Plugin) exited(ctx context.Context, held *blkio.Held) {
	c, now := p.ended(held.Path())
	if c == nil {
		held.Close()
		return // removed meanwhile
	}
	if !p.policy.Load().Writeback.HandOver { // switched off meanwhile
		held.Close()
		p.noteExit(&now, false)
		return
	}
	lines := maxima(now)
	err := held.Lift(lines)
	go func() { // the next one must not wait
		defer held.Close()
		p.liftAgain(ctx, held, now.pod.group, lines)
		p.noteExit(&now, err == nil)
		if len(lines) > 0 {
			p.countExit(&now, err)
		}
		p.writeOut(ctx, c, now.volumes)
	}()
}

// writeOut has a container's volumes synced. Once they all are it has nothing left
// to write.
func (p *Plugin) writeOut(ctx context.Context, c *container, volumes []string) {
	if len(volumes) == 0 {
		p.writtenOut(c)
		return
	}
	var left atomic.Int64
	left.Store(int64(len(volumes)))
	for _, path := range volumes {
		p.exits.syncs.soon(ctx, path, func(err error) {
			if err == nil && left.Add(-1) == 0 {
				p.writtenOut(c)
				// Its cgroup is dead or about to be; the pod's may be, too.
				if err := p.cgroups.ReleaseDeadOwners(); err != nil {
					p.log.WithError(err).Warn("Files of ended containers may stay theirs for longer")
				}
			}
		})
	}
}

func (p *Plugin) writtenOut(c *container) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(c.pod.group.unwritten, c)
	p.markDirty(c.pod.group)
}

// liftAgain is for a writer who was at the pod's cgroups when they were lifted,
// and may have put the limits back. That the cgroup has gone is no loss any more.
func (p *Plugin) liftAgain(ctx context.Context, held *blkio.Held, g *group, lines []blkio.DevLimits) {
	ctx, cancel := context.WithTimeout(ctx, liftWait)
	defer cancel()
	if p.take(g, ctx.Done()) {
		defer p.release(g)
	}
	_ = held.Lift(lines) // as said
}

func (p *Plugin) countExit(c *container, err error) {
	log := c.logger(p.log)
	switch {
	case err == nil:
		p.exits.won.Add(1)
		log.Debug("Ended, its limits are lifted")
	case errors.Is(err, blkio.ErrGone):
		lost := p.exits.lost.Add(1)
		log.WithFields(logrus.Fields{"won": p.exits.won.Load(), "lost": lost}).
			Warn("A container's cgroup was gone before its limits could be lifted, what it has queued drains at them")
	default:
		p.exits.failed.Add(1)
		log.WithError(err).Warn("The limits of a container that has ended cannot be lifted")
	}
}

// ended notes the end of the container of a cgroup, and returns it with a copy; nil
// if it has none.
func (p *Plugin) ended(cgroup string) (*container, container) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range p.pods {
		for _, c := range pod.containers {
			if c.cgroup == cgroup {
				c.running = false
				pod.group.changed()
				now := *c
				c.cgroupIDs = nil // who gets the copy notes the end
				return c, now
			}
		}
	}
	return nil, container{}
}

// maxima are the writes that lift the limits of a container.
func maxima(c container) []blkio.DevLimits {
	var out []blkio.DevLimits
	for _, d := range c.desired.Disks {
		line := blkio.DevLimits{Dev: d.Disk.Dev}
		for k, rate := range d.Limits {
			if rate != blkio.Unset {
				line.Limits[k] = blkio.Max
			}
		}
		out = append(out, line)
	}
	return out
}
