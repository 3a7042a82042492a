package plugin

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Between the end of a container's last process and the removal of its cgroup
// are 3 to 25 ms, and StopContainer comes after that (docs/reference/quirks.md). In this
// time its limits have to go: what it has queued would drain at them, out of
// reach, and its successor's writes to the same files with it. What the pod may
// do as a whole holds on, so that there is no burst; see writeout.go.

// liftWait is how long an exit waits for a concurrent write to the pod's cgroups, which
// could restore the limits. It is short: the cgroup is about to go.
const liftWait = 5 * time.Millisecond

// exitWatch is a *cgroupfs.EmptyWatch.
type exitWatch interface{ Add(c cgroupfs.Cgroup) error }

// heldCgroup is a *cgroupfs.Held.
type heldCgroup interface {
	Path() string
	Lift(lines []blkio.Line) error
	Close()
}

// exits is what hands over the data of containers that end.
type exits struct {
	// watch is nil before Run, and while it cannot be had. Plugin.mu guards it.
	watch    exitWatch
	newWatch func() (runningWatch, error)
	syncs    syncer
	// won and lost are the races with the removal of a cgroup; failed are the
	// limits that could not be lifted for another reason.
	won, lost, failed atomic.Int64
	tidying           chan struct{} // holds a token while a pod's files are, see tidy
}

// runningWatch is also a *cgroupfs.EmptyWatch.
type runningWatch interface {
	exitWatch
	Run(ctx context.Context, urgent func(error), empty func(*cgroupfs.Held)) error
	Close() error
}

func newEmptyWatch() (runningWatch, error) { return cgroupfs.NewEmptyWatch() }

const (
	// A watch that has failed is started again after a pause that grows.
	watchPause, watchPauseMax = time.Second, time.Minute
	// tellEvery is the time after which a failure that lasts is logged again.
	tellEvery = 10 * time.Minute
)

// watchExits has limits lifted at the end of containers until ctx ends.
func (p *Plugin) watchExits(ctx context.Context) {
	wait, told := watchPause, time.Time{}
	for {
		began := time.Now()
		err := p.watchOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > watchPauseMax {
			wait = watchPause // it has worked
		}
		if time.Since(told) >= tellEvery {
			told = time.Now()
			p.log.WithError(err).Error("Exit watch failed: limits of ended containers are not lifted; retrying")
		}
		restFor(ctx, wait)
		wait = min(2*wait, watchPauseMax)
	}
}

// watchOnce is watchExits until the watch fails.
func (p *Plugin) watchOnce(ctx context.Context) error {
	watch, err := p.exits.newWatch()
	if err != nil {
		return err
	}
	defer watch.Close()
	p.setWatch(watch)
	defer p.unsetWatch() // before its end, so that no cgroup is added to it then
	return watch.Run(ctx, p.urgent, func(held *cgroupfs.Held) { p.exited(ctx, held) })
}

// setWatch has the containers that are known already held by the watch.
func (p *Plugin) setWatch(watch exitWatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exits.watch = watch
	for _, g := range p.groups {
		p.markDirty(g)
	}
}

// unsetWatch notes that no container is held any more.
func (p *Plugin) unsetWatch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exits.watch = nil
	for _, pod := range p.pods {
		for _, c := range pod.containers {
			p.handle(c, lifecycle.WatchLost)
		}
	}
}

// isWatching reports whether the ends of containers are watched.
func (p *Plugin) isWatching() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exits.watch != nil
}

func (p *Plugin) urgent(err error) {
	if err != nil {
		p.log.WithError(err).Info("No CAP_SYS_NICE: on a busy node some cgroups are removed before their limits are lifted")
	}
}

// hold keeps a container's cgroup within reach that a limit on writes concerns, be
// it the pod's. It is done again with each closer look, which costs nothing when
// it is held already.
func (p *Plugin) hold(c *container, cg cgroupfs.Cgroup, own, pod policy.Settings) {
	if !p.policy.Load().Writeback.HandOver {
		return
	}
	watch := p.setExitPlan(c, exitPlanOf(own, pod))
	if watch == nil {
		return
	}
	switch err := watch.Add(cg); {
	case err == nil:
		p.noteHeld(c, watch)
	case !errors.Is(err, blkio.ErrGone):
		p.log.WithError(err).WithField("cgroup", cg.Path()).Warn("Watching a container's exit failed: its limits will not be lifted")
	}
}

// setExitPlan notes what is to be done when a container ends, and returns the watch that it
// needs, or nil.
func (p *Plugin) setExitPlan(c *container, plan exitPlan) exitWatch {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.exit.plan, c.exit.planned = plan, true
	if !c.life.Phase().MayBeWatched() || plan.nothing() && len(plan.limits) == 0 {
		return nil
	}
	return p.exits.watch
}

// noteHeld notes that a watch watches a container, unless the watch has failed meanwhile.
func (p *Plugin) noteHeld(c *container, by exitWatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exits.watch == by {
		p.handle(c, lifecycle.WatchArmed)
	}
}

// exited lifts the limits of a container whose cgroup is empty. That comes before
// all else: every instruction in between is in a race.
func (p *Plugin) exited(ctx context.Context, held heldCgroup) {
	c, do := p.ended(held.Path())
	if !do.Has(lifecycle.HandOver) {
		held.Close()
		return // removed meanwhile
	}
	if !p.policy.Load().Writeback.HandOver { // switched off meanwhile
		held.Close()
		p.noteExit(&c, false)
		p.handedOver(c.pod.group, c.id, false)
		return
	}
	lines := c.exit.plan.limits.Removals().Lines()
	err := held.Lift(lines)
	go func() { // the next one must not wait
		defer held.Close()
		p.liftAgain(ctx, held, c.pod.group, lines)
		p.noteExit(&c, err == nil)
		if len(lines) > 0 && do.Has(lifecycle.RecordExit) {
			p.countExit(&c, err)
		}
		p.writeOut(ctx, &c, p.findUnsynced(ctx, &c))
	}()
}

// liftAgain lifts the limits once more: a writer that was at the pod's cgroups at the time
// may have restored them. If the cgroup was removed in between, this is not counted as a loss.
func (p *Plugin) liftAgain(ctx context.Context, held heldCgroup, g *group, lines []blkio.Line) {
	ctx, cancel := context.WithTimeout(ctx, liftWait)
	defer cancel()
	if p.take(g, ctx.Done()) {
		defer p.release(g)
	}
	_ = held.Lift(lines) // see above
}

func (p *Plugin) countExit(c *container, err error) {
	log := c.logger(p.log)
	switch {
	case err == nil:
		p.exits.won.Add(1)
		log.Debug("Lifted limits of an ended container")
	case errors.Is(err, blkio.ErrGone):
		lost := p.exits.lost.Add(1)
		log.WithFields(logrus.Fields{"won": p.exits.won.Load(), "lost": lost}).
			Warn("Cgroup removed before its limits were lifted: its remaining dirty data is written at the old limit")
	default:
		p.exits.failed.Add(1)
		log.WithError(err).Warn("Lifting limits of an ended container failed")
	}
}

// ended notes the end of the container of a cgroup. It returns a copy of what the container
// was, and the actions that are left to the caller: none if the cgroup has no container.
func (p *Plugin) ended(cgroup string) (container, lifecycle.Actions) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range p.pods {
		for _, c := range pod.containers {
			if c.cgroup == cgroup {
				now := *c
				c.exit.cgroupIDs = nil // the caller notes the end, by the copy
				return now, p.handle(c, lifecycle.WatchFired)
			}
		}
	}
	return container{}, 0
}
