// Package handover hands over the data of containers that end. It lifts their limits before their cgroups are
// removed, and syncs their unwritten data.
package handover

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Between the end of a container's last process and the removal of its cgroup are 3 to 25 ms, and StopContainer
// comes after that (docs/reference/quirks.md). In this time the plugin lifts the container's limits. Otherwise
// the kernel would write the container's dirty data at these limits, which cannot be changed any more. The
// successor's writes to the same files would have to wait for that. The limits of the pod as a whole stay, and
// prevent a burst.

// liftWait is the time that an exit waits for a concurrent write to the pod's cgroups, which could restore the
// limits. It is short, because the cgroup is about to be removed.
const liftWait = 5 * time.Millisecond

// watchPause is short, because the limits of containers that end meanwhile stay on the data that they have left.
const watchPause = time.Second

// Exits lifts the limits of containers when they end, and has their data written out.
type Exits struct {
	Log        logrus.FieldLogger
	Containers Containers
	Open       func() (Kernel, error) // opens a watch; nil for the kernel's own
	Writeout   *Writeout
	Recovery   *recovery.Recovery

	// Won and Lost count the races with the removal of a cgroup. Failed counts the limits that could not be
	// lifted for another reason.
	Won, Lost, Failed atomic.Int64
}

// Watch watches the ends of containers until ctx ends.
func (e *Exits) Watch(ctx context.Context) {
	watch := func() error { return e.Recovery.Guarded(func() error { return e.watchOnce(ctx) }) }
	reminder.Keep(ctx, watchPause, watch, func(err error) {
		e.Log.WithError(err).Error("Exit watch failed: limits of ended containers are not lifted; retrying")
	})
}

func (e *Exits) open() (Kernel, error) {
	if e.Open != nil {
		return e.Open()
	}
	return cgroupfs.NewEmptyWatch()
}

func (e *Exits) watchOnce(ctx context.Context) error {
	watch, err := e.open()
	if err != nil {
		return err
	}
	defer watch.Close()
	e.Containers.Watching(watch)
	defer e.Containers.Lost() // before Close, so that no cgroup is added to a closed watch
	return watch.Run(ctx, e.urgent, func(held *cgroupfs.OpenCgroup) { e.Exited(ctx, held) })
}

func (e *Exits) urgent(err error) {
	if err != nil {
		e.Log.WithError(err).Info("No CAP_SYS_NICE: on a busy node some cgroups are removed before their limits are lifted")
	}
}

// Exited lifts the limits of a container whose cgroup is empty. It does that first, because it races with the
// removal of the cgroup.
func (e *Exits) Exited(ctx context.Context, held OpenCgroup) {
	var (
		ended Ended
		lines []blkio.Line
		err   error
	)
	returned := e.Recovery.Step("lift limits of an ended container", func() {
		if ended = e.Containers.Ended(held.Path()); ended != nil {
			lines = ended.Limits()
			err = held.Lift(lines)
		}
	})
	if ended == nil {
		held.Close()
		return
	}
	go func() { // the next exit must not wait
		defer held.Close()
		if returned && e.Recovery.Step("hand over data of an ended container", func() { e.handOver(ctx, held, ended, lines, err) }) {
			return
		}
		// The kernel counts what it has left to write. Without this the pod would count as in use.
		e.Recovery.Step("end the hand-over of a container", func() {
			left := ended.Leftovers()
			left.Pod.Written(left.ID, false)
		})
	}()
}

// handOver does the rest for a container whose limits were lifted, or not: lifting is its error.
func (e *Exits) handOver(ctx context.Context, held OpenCgroup, ended Ended, lines []blkio.Line, lifting error) {
	liftAgain(ctx, held, ended, lines)
	ended.Lifted(lifting == nil)
	if len(lines) > 0 && ended.Counts() {
		e.count(ended, lifting)
	}
	e.Writeout.HandOver(ctx, ended.Leftovers())
}

// liftAgain lifts the limits once more, because a concurrent writer to the pod's cgroups may have restored
// them. If the cgroup was removed in between, this does not count as a loss.
func liftAgain(ctx context.Context, held OpenCgroup, ended Ended, lines []blkio.Line) {
	ctx, cancel := context.WithTimeout(ctx, liftWait)
	defer cancel()
	ended.Alone(ctx, func() { _ = held.Lift(lines) }) // an error does not count
}

func (e *Exits) count(ended Ended, err error) {
	log := ended.Log()
	switch {
	case err == nil:
		e.Won.Add(1)
		log.Debug("Lifted limits of an ended container")
	case errors.Is(err, blkio.ErrGone):
		lost := e.Lost.Add(1)
		log.WithFields(logrus.Fields{"won": e.Won.Load(), "lost": lost}).
			Warn("Cgroup removed before its limits were lifted: its remaining dirty data is written at the old limit")
	default:
		e.Failed.Add(1)
		log.WithError(err).Warn("Lifting limits of an ended container failed")
	}
}

// Plan has the limits that a container's exit concerns, as of the last comparison of its cgroup. Writeout.Find
// finds the filesystems to sync at the exit, because no caller waits then.
type Plan struct {
	Limits  policy.Settings    // limits in io.max of its cgroup, which are lifted
	Limited map[blkio.Dev]bool // disks with a limit on writes, of the container or of the pod
}

// NewPlan returns the plan for a container and a pod with these settings.
func NewPlan(own, pod policy.Settings) Plan {
	limited := map[blkio.Dev]bool{}
	for _, all := range []policy.Settings{own, pod} {
		for _, s := range all {
			if s.LimitsWrites() {
				limited[s.Dev] = true
			}
		}
	}
	return Plan{own.In(blkio.IOMax), limited}
}

// IsEmpty reports whether no limit applies to the container's writes.
func (p *Plan) IsEmpty() bool { return len(p.Limited) == 0 }

// Containers holds the state of the containers of a node.
type Containers interface {
	// Watching notes that cgroups can be added to a watch from now on.
	Watching(Adder)
	// Lost notes that the watch has failed: no container is watched any more.
	Lost()
	// Ended notes that the last process of a cgroup has ended, and returns its container. It returns nil if
	// there is nothing to hand over.
	Ended(cgroup string) Ended
}

// Ended is a container that has ended.
type Ended interface {
	// Limits returns the lines that lift its limits.
	Limits() []blkio.Line
	// Alone calls fn while no other goroutine writes to the cgroups of its pod, or once ctx
	// has ended.
	Alone(ctx context.Context, fn func())
	// Lifted notes whether the limits were lifted.
	Lifted(bool)
	// Leftovers returns the container's pod, and the disks that the container could write to.
	Leftovers() *Leftovers
	// Counts reports whether this is the first report of its end.
	Counts() bool
	Log() logrus.FieldLogger
}

// Adder adds cgroups to a watch. It is a *cgroupfs.EmptyWatch.
type Adder interface{ Add(c cgroupfs.Cgroup) error }

// Kernel is the kernel's watch of cgroups for their last process. It is also a
// *cgroupfs.EmptyWatch.
type Kernel interface {
	Adder
	Run(ctx context.Context, urgent func(error), empty func(*cgroupfs.OpenCgroup)) error
	Close() error
}

// OpenCgroup is a cgroup that stays open until Close, also after it was removed. It is a *cgroupfs.OpenCgroup.
type OpenCgroup interface {
	Path() string
	Lift(lines []blkio.Line) error
	Close()
}
