// Package follower lets the models of io.cost follow the mix of I/O, on disks with two limits. It looks at the cgroups, and writes
// what package follow decides.
package follower

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/iocost/follow"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/plugin/shares"
)

// Config is the configuration of a Follower. All fields but Recovery are required.
type Config struct {
	Log     logrus.FieldLogger
	Cgroups *cgroupfs.Hierarchy
	// Shares has what the cgroups have done.
	Shares *shares.Keeper
	// Write returns a function that writes a line, and gives up after some time.
	Write func(deadline time.Duration) iocost.Write
	// Name returns the name of a cgroup for people.
	Name     func(cgroup string) string
	Recovery *recovery.Recovery
}

// Follower follows the mix. It is not safe for concurrent use.
type Follower struct {
	cfg      Config
	began    time.Time
	disks    map[blkio.Dev]*disk
	isBroken bool
	problem  reminder.Reminder
}

// New returns a Follower that follows on no disk yet.
func New(cfg Config) *Follower { return &Follower{cfg: cfg, began: time.Now()} }

// disk is a disk whose model follows the mix of I/O.
type disk struct {
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
func (d *disk) isFor(s *iocost.Setup) bool {
	return s.Enabled && s.Limits != nil && d.setup.Identity == s.Identity && *d.setup.Limits == *s.Limits &&
		*d.setup.Model == *s.Model && *d.setup.QOS == *s.QOS
}

// KeepMoved puts the models that were moved into the wanted setups. It returns all setups with their safe models.
func (f *Follower) KeepMoved(wants []iocost.Setup) (safe map[blkio.Dev]iocost.Setup) {
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

// Follow follows the mix on the disks whose setup is in force, and on no other ones. safe is from KeepMoved.
func (f *Follower) Follow(states []iocost.State, safe map[blkio.Dev]iocost.Setup) {
	f.isBroken = false
	next := map[blkio.Dev]*disk{}
	for i := range states {
		s := &states[i]
		setup, known := safe[s.Disk.Dev], f.disks[s.Disk.Dev]
		switch {
		case setup.Limits == nil || !s.Enabled || !s.Works || s.Err != nil || len(s.Foreign) > 0:
			f.isBroken = f.isBroken || known != nil && known.decision.IsMoved() && s.Err != nil // the moved model may be in force
		case known != nil && known.isFor(&setup):
			next[s.Disk.Dev] = known
		default:
			next[s.Disk.Dev] = &disk{setup: setup, controller: follow.Controller{Limits: *setup.Limits, Safe: *setup.Model, Name: f.cfg.Name}}
		}
	}
	f.disks = next
}

// IsBroken reports whether io.cost has to be set up again, because a model could not be written since the last Follow.
func (f *Follower) IsBroken() bool { return f.isBroken }

// Due returns when the next look is due, or an earlier time.
func (f *Follower) Due(earlier time.Time) time.Time {
	for _, d := range f.disks {
		if d.due.Before(earlier) {
			earlier = d.due
		}
	}
	return earlier
}

// Look looks at the disks that are due, and writes what follows.
func (f *Follower) Look(now time.Time) {
	if now.Before(f.Due(now.Add(time.Second))) {
		return
	}
	err := f.cfg.Recovery.Guarded(func() error { return f.tryLook(now) })
	if err != nil {
		f.lookFailed(now)
	}
	if f.problem.Due(now, err) {
		f.cfg.Log.WithError(err).Error("The model of io.cost does not follow the I/O")
	}
}

// lookFailed restores the safe models of disks that are due.
func (f *Follower) lookFailed(now time.Time) {
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

func (f *Follower) tryLook(now time.Time) error {
	root, err := f.cfg.Cgroups.Cgroup(".").ReadIOStat()
	if err := errors.Join(err, f.cfg.Shares.Look(now)); err != nil {
		return err
	}
	took := time.Since(now)
	for dev, d := range f.disks {
		if now.Before(d.due) {
			continue
		}
		before := d.last
		d.last = &counters{at: now, disk: root[dev], uses: f.cfg.Shares.Uses(dev)}
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
func (f *Follower) take(d *disk, next follow.Decision) {
	d.decision = next
	if !next.Write {
		return
	}
	d.last = nil
	log := f.cfg.Log.WithField("disk", d.setup.Disk.Name)
	log.WithField("model", next.State).Info("Change the model of io.cost: " + next.Reason)
	if err := f.write(d, next.Model, writeDeadline); err != nil {
		d.decision = d.controller.Back(next, next.Since, err.Error())
		f.isBroken = true
		log.WithError(err).Error("The model of io.cost does not follow the I/O")
	}
}

// write puts a model into force.
func (f *Follower) write(d *disk, m blkio.CostModel, deadline time.Duration) error {
	want := d.setup
	want.Model = &m
	states, err := iocost.Apply(f.cfg.Cgroups, f.cfg.Write(deadline), []iocost.Setup{want}, true)
	if err != nil {
		return err
	}
	if s := &states[0]; s.Err != nil || s.Works && len(s.Foreign) == 0 {
		return s.Err
	}
	return errors.New("another program has changed io.cost on the disk")
}

// Restore puts the safe models into force. A disk on which it fails gets it from the next process.
func (f *Follower) Restore() {
	for _, d := range f.disks {
		if !d.decision.IsMoved() {
			continue
		}
		if err := f.write(d, *d.setup.Model, stopDeadline); err != nil {
			err = fmt.Errorf("restore the safe model: %w", err)
			f.cfg.Log.WithField("disk", d.setup.Disk.Name).WithError(err).Error("The model of io.cost does not follow the I/O")
		}
	}
}

// The kernel waits for the requests of the disk that are under way to write a model. Pods have a few seconds to end.
const (
	writeDeadline = 5 * time.Second
	stopDeadline  = 2 * time.Second
)

// State returns how the model of a disk follows the mix; nil if it does not come from a calibration.
func (f *Follower) State(s *iocost.State) *health.Follow {
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
