package weights

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/iocost/follow"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/plugin/shares"
)

// follower lets the models of io.cost follow the mix of I/O, on disks with two limits. It looks at the cgroups, and writes what
// package follow decides. Only the goroutine of Keeper.Run uses it.
type follower struct {
	k        *Keeper
	began    time.Time
	disks    map[blkio.Dev]*followed
	isBroken bool // io.cost has to be set up again, because a model could not be written since the last setup
	problem  reminder.Reminder
}

// followed is a disk whose model follows the mix of I/O.
type followed struct {
	setup      iocost.Setup // with the safe model
	controller follow.Controller
	decision   follow.Decision
	due        time.Time // of the next look
	last       *counters // nil until the next look, which only begins an interval
}

// counters are those of a disk at a look.
type counters struct {
	at   time.Time
	disk blkio.Stat
	uses map[string]shares.Use
}

// isFor reports whether d is about the same disk, with the same safe model, as a setup.
func (d *followed) isFor(s *iocost.Setup) bool {
	return s.Enabled && s.Limits != nil && d.setup.Identity == s.Identity && *d.setup.Limits == *s.Limits &&
		*d.setup.Model == *s.Model && *d.setup.QOS == *s.QOS
}

// keepMoved puts the models that were moved into the wanted setups. It returns all setups with their safe models.
func (f *follower) keepMoved(wants []iocost.Setup) (safe map[blkio.Dev]iocost.Setup) {
	safe = map[blkio.Dev]iocost.Setup{}
	for i := range wants {
		want := &wants[i]
		safe[want.Disk.Dev] = *want
		if d := f.disks[want.Disk.Dev]; d != nil && d.isFor(want) && d.decision.IsMoved() {
			moved := d.decision.Model
			want.Model = &moved
		}
	}
	return safe
}

// follow follows the mix on the disks whose setup is in force, and on no other ones. safe is from keepMoved.
func (f *follower) follow(states []iocost.State, safe map[blkio.Dev]iocost.Setup) {
	f.isBroken = false
	next := map[blkio.Dev]*followed{}
	for i := range states {
		s := &states[i]
		setup, known := safe[s.Disk.Dev], f.disks[s.Disk.Dev]
		switch {
		case setup.Limits == nil || !s.Enabled || !s.Works || s.Err != nil || len(s.Foreign) > 0:
			f.isBroken = f.isBroken || known != nil && known.decision.IsMoved() && s.Err != nil // the moved model may be in force
		case known != nil && known.isFor(&setup):
			next[s.Disk.Dev] = known
		default:
			next[s.Disk.Dev] = &followed{setup: setup, controller: follow.Controller{Limits: *setup.Limits, Safe: *setup.Model, Name: f.k.nameOf}}
		}
	}
	f.disks = next
}

// due returns when the next look is due, or an earlier time.
func (f *follower) due(earlier time.Time) time.Time {
	for _, d := range f.disks {
		if d.due.Before(earlier) {
			earlier = d.due
		}
	}
	return earlier
}

// look looks at the disks that are due, and writes what follows.
func (f *follower) look(now time.Time) {
	if now.Before(f.due(now.Add(time.Second))) {
		return
	}
	err := f.k.cfg.Recovery.Guarded(func() error { return f.tryLook(now) })
	if err != nil {
		f.lookFailed(now)
	}
	if f.problem.Due(now, err) {
		f.k.cfg.Log.WithError(err).Error("The model of io.cost does not follow the I/O")
	}
}

// lookFailed restores the safe models of disks that are due.
func (f *follower) lookFailed(now time.Time) {
	for _, d := range f.disks {
		if now.Before(d.due) {
			continue
		}
		if d.decision.IsMoved() {
			f.take(d, d.controller.Back(d.decision, now.Sub(f.began), "the use of the disk cannot be read"))
		}
		d.last, d.due = nil, now.Add(d.decision.Interval())
	}
}

func (f *follower) tryLook(now time.Time) error {
	root, err := f.k.cfg.Cgroups.Cgroup(".").ReadIOStat()
	if err := errors.Join(err, f.k.shares.Look(now)); err != nil {
		return err
	}
	took := time.Since(now)
	for dev, d := range f.disks {
		if now.Before(d.due) {
			continue
		}
		before := d.last
		d.last = &counters{at: now, disk: root[dev], uses: f.k.shares.Uses(dev)}
		if before != nil {
			f.take(d, d.controller.Next(d.decision, d.last.since(before, took, now.Sub(f.began))))
		}
		if d.due = time.Now(); d.last != nil { // otherwise an interval begins as soon as the queue is open again
			d.due = d.due.Add(d.decision.Interval())
		}
	}
	return nil
}

// since returns what was done between two looks.
func (c *counters) since(before *counters, took, at time.Duration) follow.Look {
	seconds := c.at.Sub(before.at).Seconds()
	rate := func(now, before uint64) float64 { return float64(now-min(now, before)) / seconds }
	disk := c.disk
	out := follow.Look{
		At: at, Past: c.at.Sub(before.at), Took: took, Uses: map[string]follow.Use{},
		Ops:   rate(disk.Rios+disk.Wios, before.disk.Rios+before.disk.Wios),
		Bytes: rate(disk.Rbytes+disk.Wbytes, before.disk.Rbytes+before.disk.Wbytes),
	}
	const second = 1e6 // in microseconds
	for cgroup, now := range c.uses {
		was := before.uses[cgroup]
		if now.Stat == was.Stat {
			continue
		}
		use := follow.Use{
			Weight: now.Weight, Wait: -1, Cost: rate(now.CostUsage, was.CostUsage) / second,
			Ops: rate(now.Rios+now.Wios, was.Rios+was.Wios), Bytes: rate(now.Rbytes+now.Wbytes, was.Rbytes+was.Wbytes),
		}
		if now.HasCostWait {
			use.Wait = rate(now.CostWait, was.CostWait) / second
		}
		out.Uses[cgroup] = use
	}
	return out
}

// take takes a decision, and writes its model. After an error the safe model is wanted again, which the next setup sees to.
func (f *follower) take(d *followed, next follow.Decision) {
	d.decision = next
	if !next.Write {
		return
	}
	d.last = nil
	log := f.k.cfg.Log.WithField("disk", d.setup.Disk.Name)
	log.WithField("model", next.State).Info("Change the model of io.cost: " + next.Reason)
	if err := f.write(d, next.Model, costDeadline); err != nil {
		d.decision = d.controller.Back(next, next.Since, err.Error())
		f.isBroken = true
		log.WithError(err).Error("The model of io.cost does not follow the I/O")
	}
}

func (f *follower) write(d *followed, m blkio.CostModel, deadline time.Duration) error {
	want := d.setup
	want.Model = &m
	states, err := iocost.Apply(f.k.cfg.Cgroups, f.k.bounded(deadline), f.k.setQueue, []iocost.Setup{want}, true)
	if err != nil {
		return err
	}
	if s := &states[0]; s.Err != nil || s.Works && len(s.Foreign) == 0 {
		return s.Err
	}
	return errors.New("another program has changed io.cost on the disk")
}

// restore puts the safe models into force. A disk on which it fails gets it from the next process.
func (f *follower) restore() {
	for _, d := range f.disks {
		if !d.decision.IsMoved() {
			continue
		}
		if err := f.write(d, *d.setup.Model, stopDeadline); err != nil {
			err = fmt.Errorf("restore the safe model: %w", err)
			f.k.cfg.Log.WithField("disk", d.setup.Disk.Name).WithError(err).Error("The model of io.cost does not follow the I/O")
		}
	}
}

// stopDeadline is that of a write at the end. Pods have a few seconds to end.
const stopDeadline = 2 * time.Second

// state returns how the model of a disk follows the mix; nil if it does not come from a calibration.
func (f *follower) state(s *iocost.State) *health.Follow {
	d := f.disks[s.Disk.Dev]
	switch {
	case !s.Works || s.ModelOrigin != iocost.FromCalibration:
		return nil
	case d == nil:
		return &health.Follow{State: health.ModelPinned, Reason: cmp.Or(s.Pinned, "the setup of io.cost is not in force")}
	}
	out := &health.Follow{State: string(cmp.Or(d.decision.State, follow.Safe)), Reason: d.decision.Reason}
	if d.decision.IsMoved() {
		out.Model = d.decision.Model.String()
	}
	return out
}
