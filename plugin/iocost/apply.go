package iocost

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// Write writes a line to a control file of a cgroup, as [cgroupfs.Cgroup.Write] does.
type Write func(c cgroupfs.Cgroup, line blkio.Line) error

// Queue writes a file of a disk's queue in sysfs, such as "scheduler".
type Queue func(dev blkio.Dev, file, value string) error

// Apply sets up io.cost or bfq on each disk by its setup. On other disks it removes the settings of this program. If
// keep is true, the demand may not be known completely, and it removes only settings that the operator does not
// want. The error is about the whole; an error about one disk is in its State. It is blkio.ErrNotSupported on a kernel without io.cost,
// where only bfq is set up.
//
// Each line is written by write and queue, which may give up: the kernel waits for the requests of the disk that are
// under way, and those of a disk that hangs do not end (ioc_qos_write in block/blk-iocost.c).
func Apply(cgroups *cgroupfs.Hierarchy, write Write, queue Queue, wants []Setup, keep bool) ([]State, error) {
	a, err := read(cgroups, write, queue)
	if err != nil {
		return nil, err
	}
	states := make([]State, len(wants))
	wanted := map[blkio.Dev]bool{}
	for i, want := range wants {
		wanted[want.Disk.Dev] = true
		states[i] = a.apply(want, keep)
	}
	if keep {
		return states, a.unsupported
	}
	errs := []error{a.unsupported}
	for _, dev := range slices.SortedFunc(maps.Keys(a.owned), blkio.Dev.Compare) {
		if !wanted[dev] {
			errs = append(errs, a.remove(dev), a.restore(dev, ""))
		}
	}
	return states, errors.Join(errs...)
}

// Clear removes all that this program has set. It returns a line for each write, also with an
// error. With dryRun it changes nothing. disks has the disks of the node, with their schedulers.
func Clear(cgroups *cgroupfs.Hierarchy, queue Queue, disks []Setup, dryRun bool) (steps []string, err error) {
	a, err := read(cgroups, cgroupfs.Cgroup.Write, queue)
	if err != nil {
		return nil, err
	}
	a.dryRun = dryRun
	var errs []error
	schedulers := map[blkio.Dev]string{}
	for i := range disks {
		schedulers[disks[i].Disk.Dev] = disks[i].Scheduler
		errs = append(errs, a.identify(&disks[i]))
	}
	for _, dev := range slices.SortedFunc(maps.Keys(a.owned), blkio.Dev.Compare) {
		errs = append(errs, a.remove(dev), a.restore(dev, schedulers[dev]))
	}
	return a.steps, errors.Join(errs...)
}

// actual has the settings of the kernel, and those of them that are this program's.
type actual struct {
	root   cgroupfs.Cgroup
	writer Write
	queue  Queue
	models map[blkio.Dev]blkio.CostModelLine
	qos    map[blkio.Dev]blkio.CostQOSLine
	owned  map[blkio.Dev]owned
	room   int // largest size of the record, in bytes
	dryRun bool
	steps  []string // a line for each write, also for those that dryRun leaves out
	// unsupported is blkio.ErrNotSupported on a kernel without io.cost.
	unsupported error
}

func read(cgroups *cgroupfs.Hierarchy, write Write, queue Queue) (*actual, error) {
	a := &actual{root: cgroups.Cgroup("."), writer: write, queue: queue, owned: map[blkio.Dev]owned{}, room: maxRecord}
	var err, qosErr error
	a.models, err = cgroups.ReadIOCostModel()
	a.qos, qosErr = cgroups.ReadIOCostQOS()
	if err = errors.Join(err, qosErr); errors.Is(err, blkio.ErrNotSupported) {
		a.unsupported = err
	} else if err != nil {
		return nil, err
	}
	data, err := a.root.ReadXattr(Attribute)
	if err != nil || data == nil {
		return a, err
	}
	if a.owned, err = parseRecord(data); err != nil {
		return nil, fmt.Errorf("parse %s of the root cgroup: %w", Attribute, err)
	}
	return a, nil
}

// apply sets up one disk. The model is written first: io.cost must not run with another one for a moment.
func (a *actual) apply(want Setup, keep bool) State {
	dev := want.Disk.Dev
	if err := a.identify(&want); err != nil {
		return State{Setup: want, Works: a.qos[dev].Enabled, Err: err}
	}
	s, own := a.decide(want), a.owned[dev]
	switch {
	case s.By == BFQ && s.Enabled:
		s.Err = a.schedule(&want)
		s.Works = s.Err == nil || errors.Is(s.Err, errLowLatency) // the weights are kept all the same
		return s
	case s.By == BFQ && keep && !s.Chosen && own.Scheduler != "": // a rule can enforce weights under mode: observe
		s.Works = own.IsBFQ && want.Scheduler == BFQ
		return s
	}
	switch s.Err = a.restore(dev, want.Scheduler); {
	case s.Err != nil, a.unsupported != nil:
	case s.Enabled:
		s.Err = a.set(dev, s.lines())
		s.Works = s.Works || s.Err == nil && !s.IsForeign(blkio.IOCostQOS)
	case !keep || s.Chosen:
		s.Err = a.remove(dev)
		s.Works = s.Works && (s.Err != nil || own.QOS == "")
	default:
		s.Err = a.replaceModel(dev, s.lines().Model)
	}
	return s
}

// replaceModel replaces a model of this program by the wanted one, if there is one. A former instance may have ended while its
// model followed the mix.
func (a *actual) replaceModel(dev blkio.Dev, want string) error {
	own := a.owned[dev]
	if own.Model == "" || want == "" || a.hasModel(dev, want) {
		return nil
	}
	own.Model = want
	if err := a.record(dev, own); err != nil {
		return err
	}
	return a.write(dev, blkio.IOCostModel, want)
}

// identify drops the record of a former disk with the same device number. Its settings were removed with it,
// and those that the kernel has now are from another program. A setting that the kernel still has as it was
// written stays recorded: a loop device keeps its settings when it gets another file. bfq without low_latency is such a setting.
func (a *actual) identify(s *Setup) error {
	dev, own := s.Disk.Dev, a.owned[s.Disk.Dev]
	if isText(own.Disk, s.Identity) || own.Disk == "" || s.Identity == "" {
		return nil
	}
	own.Disk, own.IsBFQ = s.Identity, false
	if s.Scheduler != BFQ || s.LowLatency == "1" {
		own.Scheduler = ""
	}
	if !a.hasModel(dev, own.Model) {
		own.Model = ""
	}
	if !a.hasQOS(dev, own.QOS) {
		own.QOS = ""
	}
	return a.record(dev, own)
}

// The lines that give a device back to the kernel.
const (
	noModel = "ctrl=auto"
	noQOS   = "enable=0 ctrl=auto"
)

// set writes the settings that differ from want. They are recorded before they are written.
func (a *actual) set(dev blkio.Dev, want owned) error {
	before := a.owned[dev]
	after := want
	if want.Model == "" && before.Model != "" { // until it is removed
		after.Model = before.Model
	}
	err := a.record(dev, after)
	switch {
	case err != nil:
	case want.Model == "" && before.Model != "":
		err = a.write(dev, blkio.IOCostModel, noModel)
	case want.Model != "" && !a.hasModel(dev, want.Model):
		err = a.write(dev, blkio.IOCostModel, want.Model)
	}
	if err == nil && want.QOS != "" && !a.hasQOS(dev, want.QOS) {
		err = a.write(dev, blkio.IOCostQOS, want.QOS)
	}
	if err != nil {
		return err
	}
	return a.record(dev, want)
}

// hasModel reports whether the line that the kernel has is the one that was written.
func (a *actual) hasModel(dev blkio.Dev, line string) bool {
	now := a.models[dev]
	return now.IsUser && isText(line, "ctrl=user model=linear "+now.Model.String())
}

// hasQOS reports whether the line that the kernel has is the one that was written.
func (a *actual) hasQOS(dev blkio.Dev, line string) bool {
	now := a.qos[dev]
	if !now.Enabled {
		return false
	}
	if !now.IsUser {
		return isText(line, "enable=1 ctrl=auto")
	}
	return isText(line, "enable=1 ctrl=user "+now.QOS.String())
}

// remove gives a device back to the kernel, as far as this program has set it. A device that is
// not there any more has nothing to remove.
func (a *actual) remove(dev blkio.Dev) error {
	own := a.owned[dev]
	for _, l := range []struct{ file, ours, text string }{{blkio.IOCostQOS, own.QOS, noQOS}, {blkio.IOCostModel, own.Model, noModel}} {
		if l.ours == "" {
			continue
		}
		if err := a.write(dev, l.file, l.text); err != nil && !errors.Is(err, blkio.ErrNoDevice) {
			return err
		}
	}
	own.Model, own.QOS = "", ""
	return a.record(dev, own)
}

func (a *actual) write(dev blkio.Dev, file, line string) error {
	line = dev.String() + " " + line
	if a.steps = append(a.steps, fmt.Sprintf("write %s %q", file, line)); a.dryRun {
		return nil
	}
	return a.writer(a.root, blkio.Line{File: file, Text: line, Dev: dev})
}

// BFQ is the scheduler that divides a disk by weights.
const BFQ = "bfq"

// errLowLatency is about a disk with bfq whose low_latency was enabled later, also by a change of the scheduler and back. It is not written
// again: that would be a contest with another program.
var errLowLatency = errors.New("another program has enabled bfq's low_latency, which favours single processes over weights: write 0 to queue/iosched/low_latency of the disk")

// schedule sets the scheduler of a disk to bfq, once. low_latency would raise the weights of single processes.
//
// Source: bfq_update_bfqq_wr_on_rq_arrival in block/bfq-iosched.c.
func (a *actual) schedule(want *Setup) error {
	dev := want.Disk.Dev
	if err := a.remove(dev); err != nil {
		return err
	}
	own := a.owned[dev]
	switch {
	case own.IsBFQ && want.Scheduler != BFQ:
		return fmt.Errorf("another program has changed the scheduler to %s: remove weights: bfq from the node policy, and add it again to use bfq", want.Scheduler)
	case own.IsBFQ && want.LowLatency == "1":
		return errLowLatency
	case own.IsBFQ:
		return nil
	}
	if want.Scheduler != BFQ { // since a failed attempt it may have changed
		own.Scheduler = want.Scheduler
	}
	own.Disk, own.Scheduler = want.Identity, cmp.Or(own.Scheduler, want.Scheduler, "none")
	if err := a.record(dev, own); err != nil {
		return err
	}
	if want.Scheduler != BFQ {
		if err := a.queue(dev, "scheduler", BFQ); err != nil {
			return err
		}
	}
	if err := a.queue(dev, "iosched/low_latency", "0"); err != nil {
		return err
	}
	own.IsBFQ = true
	return a.record(dev, own)
}

// restore gives a disk its former scheduler back, and none of the weights of this program. It writes nothing if another program has changed
// the scheduler since: with another one than bfq the kernel drops all weights and settings of bfq. If bfq was never seen in force, a write of
// it can still be under way in the kernel, and the former one is set after it.
//
// Source: bfq_exit_queue in block/bfq-iosched.c.
func (a *actual) restore(dev blkio.Dev, now string) error {
	own := a.owned[dev]
	var schedulers []string
	switch former := own.Scheduler; {
	case former == "":
		return nil
	case now == "" || now != BFQ && own.IsBFQ:
	case former == BFQ:
		schedulers = []string{"none", BFQ}
	default:
		schedulers = []string{former}
	}
	for _, scheduler := range schedulers {
		if a.steps = append(a.steps, fmt.Sprintf("write queue/scheduler of %s %q", dev, scheduler)); a.dryRun {
			continue
		}
		if err := a.queue(dev, "scheduler", scheduler); err != nil {
			return err
		}
	}
	own.Scheduler, own.IsBFQ = "", false
	return a.record(dev, own)
}

// ServesBFQ returns the disks that this program has given to bfq.
func ServesBFQ(cgroups *cgroupfs.Hierarchy) (map[blkio.Dev]bool, error) {
	a, err := read(cgroups, nil, nil)
	if err != nil {
		return nil, err
	}
	out := map[blkio.Dev]bool{}
	for dev, own := range a.owned {
		out[dev] = own.IsBFQ
	}
	return out, nil
}
