package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
	// syncDeadline is when a sync is given up. It may go on in the kernel.
	syncDeadline = time.Minute
)

// exits is what hands over the data of containers that end.
type exits struct {
	watch *blkio.EmptyWatch // nil before Run, and where it cannot be had
	sync  func(ctx context.Context, hostPath string) error
	// won and lost are the races with the removal of a cgroup; failed are the
	// limits that could not be lifted for another reason.
	won, lost, failed atomic.Int64
	synced, unsynced  atomic.Int64 // filesystems

	mu      sync.Mutex
	syncing map[string]bool // by filesystem: one is under way; true: and another is wanted
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

// hold keeps a limited container's cgroup within reach. It is done again with
// each closer look, which costs nothing when it is held already.
func (p *Plugin) hold(c *change) {
	p.mu.Lock()
	watch := p.exits.watch
	p.mu.Unlock()
	if watch == nil || c.target == nil || len(c.target.want) == 0 || !p.policy.Load().Writeback.HandOver {
		return
	}
	if err := watch.Add(c.cg); err != nil && !errors.Is(err, blkio.ErrGone) {
		p.log.WithError(err).WithField("cgroup", c.cg.Path()).Warn("The limits of a container cannot be lifted when it ends")
	}
}

// exited lifts the limits of a container whose cgroup is empty. That comes before
// all else: every instruction in between is in a race.
func (p *Plugin) exited(ctx context.Context, held *blkio.Held) {
	now, ok := p.ended(held.Path())
	if !ok {
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
		p.countExit(&now, err)
		for _, path := range p.toSync(&now) {
			p.syncSoon(ctx, path)
		}
	}()
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

// ended notes the end of the container of a cgroup, if it has one, and returns a
// copy.
func (p *Plugin) ended(cgroup string) (container, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range p.pods {
		for _, c := range pod.containers {
			if c.cgroup == cgroup {
				c.running = false
				pod.group.changed()
				now := *c
				c.cgroupIDs = nil // who gets the copy notes the end
				return now, true
			}
		}
	}
	return container{}, false
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

// toSync are the mountpoints of the volumes whose writes are limited. The
// writable layer is none: it goes with the container.
func (p *Plugin) toSync(c *container) []string {
	var out []string
	for _, m := range c.facts.Mounts {
		limited := func(d blkio.Disk) bool {
			limits := wanted(c.desired)[d.Dev]
			return limits[blkio.Wbps] != blkio.Unset || limits[blkio.Wiops] != blkio.Unset
		}
		if !m.ReadOnly && !m.Injected && m.Backing.Mountpoint != "" && slices.ContainsFunc(m.Backing.Disks, limited) {
			out = append(out, m.Backing.Mountpoint)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// syncSoon has a filesystem written out, one sync at a time: its writeback does
// not get faster by several, and each may hang.
func (p *Plugin) syncSoon(ctx context.Context, path string) {
	if p.exits.sync == nil || !p.exits.begin(path) {
		return
	}
	go func() {
		for again := true; again; again = p.exits.next(path) {
			began := time.Now()
			err := p.syncOnce(ctx, path)
			log := p.log.WithFields(logrus.Fields{"path": path, "took": time.Since(began).Round(time.Millisecond).String()})
			switch {
			case err == nil:
				p.exits.synced.Add(1)
				log.Debug("Synced")
			case ctx.Err() == nil:
				p.exits.unsynced.Add(1)
				log.WithError(err).Warn("The data of a container that has ended is not all on its disk")
			}
		}
	}()
}

func (p *Plugin) syncOnce(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, syncDeadline, fmt.Errorf("not done within %v", syncDeadline))
	defer cancel()
	return p.exits.sync(ctx, path)
}

// begin says whether a sync of this path is to be begun; if not, there is one
// under way, and another follows it.
func (e *exits) begin(path string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, busy := e.syncing[path]; busy {
		e.syncing[path] = true
		return false
	}
	if e.syncing == nil {
		e.syncing = map[string]bool{}
	}
	e.syncing[path] = false
	return true
}

// next says whether another sync is wanted after one that has ended.
func (e *exits) next(path string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	again := e.syncing[path]
	if again {
		e.syncing[path] = false
	} else {
		delete(e.syncing, path)
	}
	return again
}
