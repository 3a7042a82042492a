// Package weights makes the weights of pods effective. It enables io.cost on the disks that a container with a
// weight uses, and keeps the weights of the cgroups above containers right.
package weights

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/plugin/shares"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Demand has the weights that pods ask for.
type Demand struct {
	Weighted []Weighted
	// Budgets has the budgets of running pods, by path of their cgroups.
	Budgets map[string]policy.WeightBudget
	// Unlisted is true until the runtime has listed its containers. Then the weights of pods stay as they are.
	Unlisted bool
	// Complete is false while there may be running pods with an unknown demand, such as before the runtime has
	// listed its containers. Then no disk loses io.cost, unless the operator decides so. Unknown is the reason.
	Complete bool
	Unknown  string
	// Cleared are the disks of weights that an operator has cleared. There io.cost does not stay
	// enabled for a while after the last weight.
	Cleared []blkio.Disk
}

// Weighted is a running container, or a pod as a whole, with a weight.
type Weighted struct {
	Namespace, Pod string
	Container      string       // "" for the pod as a whole
	Cgroup         string       // below the cgroup root
	Disks          []blkio.Disk // the physical disks that the weight applies to
	NoDisk         string       // why there are none; "" if there are, or if they are not known
	Weights        blkio.Weights
}

// String names it.
func (w *Weighted) String() string {
	if w.Container == "" {
		return "pod " + w.Namespace + "/" + w.Pod
	}
	return "container " + w.Namespace + "/" + w.Pod + " " + w.Container
}

func (d *Demand) given() map[string]blkio.Weights {
	out := make(map[string]blkio.Weights, len(d.Weighted))
	for i := range d.Weighted {
		out[d.Weighted[i].Cgroup] = d.Weighted[i].Weights
	}
	return out
}

// Disks has the facts about the disks of the node.
type Disks interface {
	// Disks returns all disks, sorted by number.
	Disks() ([]storage.DiskInfo, error)
	// Calibration returns the measured values of a disk.
	Calibration(d *storage.DiskInfo) (iocost.Known, error)
	// Udev returns the values of a disk in udev's database.
	Udev(d *storage.DiskInfo) (iocost.Known, error)
	// SetQueue writes a file of a disk's queue in sysfs.
	SetQueue(dev blkio.Dev, file, value string) error
}

// Config is the configuration of a Keeper. All fields but Recovery are required.
type Config struct {
	Log     logrus.FieldLogger
	Cgroups *cgroupfs.Hierarchy
	Policy  func() *policy.Policy
	Demand  func() Demand
	Disks   Disks
	// Changed is called after io.cost or bfq was enabled on a disk, or disabled. It gets the disks with either; true for bfq.
	Changed func(byBFQ map[blkio.Dev]bool)
	// Recovery counts panics. It may be nil.
	Recovery *recovery.Recovery
}

// setUpEvery is the time after which io.cost is compared with the wanted setup even without a change. Another
// program may have changed it, and there may be a new disk.
const setUpEvery = 30 * time.Second

// Keeper keeps weights effective. Report may be called at any time, Run once.
type Keeper struct {
	cfg     Config
	shares  *shares.Keeper
	recent  recent
	setUp   setUp
	shared  bool // cgroups may have weights of this program or of a former instance; cleared by a pass that removed all
	problem reminder.Reminder
	writes  bounded.Calls
	report  atomic.Pointer[health.Weights]

	follower *follower
}

// setUp has the facts by which io.cost was last set up, and the results.
type setUp struct {
	at     time.Time // zero before the first time
	policy *policy.Policy
	disks  []blkio.Disk // those that something with a weight uses, or has used lately
	states []iocost.State
	// complete is Demand.Complete.
	complete bool
	err      error // lasts until the next time
}

// New returns a Keeper.
func New(cfg Config) *Keeper {
	k := &Keeper{cfg: cfg, shared: true, recent: recent{}}
	k.writes.Panicked = cfg.Recovery.Count
	k.shares = shares.NewKeeper(cfg.Cgroups, k.bounded(weightDeadline))
	k.follower = &follower{k: k, began: time.Now()}
	k.report.Store(&health.Weights{})
	return k
}

// Report returns the state at the last pass. It must not be changed.
func (k *Keeper) Report() *health.Weights { return k.report.Load() }

// Bounds of writes, so that a disk that hangs keeps no other one from its weights. To enable
// io.cost, the kernel waits for the requests that are under way.
const (
	costDeadline   = 5 * time.Second
	weightDeadline = time.Second
)

// bounded returns a function that writes a line, and gives up after some time.
func (k *Keeper) bounded(d time.Duration) func(cgroupfs.Cgroup, blkio.Line) error {
	return func(c cgroupfs.Cgroup, line blkio.Line) error {
		return k.writes.For(context.Background(), line.Dev.String(), d, func(context.Context) error { return c.Write(line) })
	}
}

// setQueue writes a file of a disk's queue, and logs that. To change the scheduler, the kernel waits for the requests that are under way.
func (k *Keeper) setQueue(dev blkio.Dev, file, value string) error {
	err := k.writes.For(context.Background(), dev.String(), costDeadline, func(context.Context) error { return k.cfg.Disks.SetQueue(dev, file, value) })
	if err == nil {
		k.cfg.Log.WithField("disk", dev.String()).Infof("Set queue/%s of the disk to %s", file, value)
	}
	return err
}

// passEvery is the time between two passes, in which the weights of pods follow the active containers. A pass
// over 250 pods takes 1 to 10 ms, more if more of them do I/O, most of it for reads of io.stat (BenchmarkPass).
// The pause after a pass grows with the duration of the pass, up to passAtMost. So passes use at most one part
// in passShare of a CPU. With a longer pause, tenants would notice that weights follow late.
const (
	passEvery  = 2 * time.Second
	passAtMost = 8 * time.Second
	passShare  = 500
)

// pause returns how long to wait after a pass that took so long.
func pause(took time.Duration) time.Duration {
	return max(passEvery, min(passShare*took, passAtMost))
}

// Run keeps weights effective until ctx ends. Then all stays as it is, as limits do. Only models that follow the mix go back to the
// safe ones.
func (k *Keeper) Run(ctx context.Context) {
	defer k.follower.restore()
	var passDue time.Time
	for ctx.Err() == nil {
		passDue = k.turn(time.Now(), passDue)
		reminder.Sleep(ctx, time.Until(k.follower.due(passDue)))
	}
}

// turn makes a pass and looks, as far as they are due. It returns when the next pass is due.
func (k *Keeper) turn(now, passDue time.Time) time.Time {
	if !now.Before(passDue) {
		k.pass(now)
		passDue = time.Now().Add(pause(time.Since(now)))
	}
	k.follower.look(time.Now())
	return passDue
}

// pass sets up io.cost and the weights of pods. Without a disk with io.cost it only asks for the demand of the
// pods.
func (k *Keeper) pass(now time.Time) {
	err := k.cfg.Recovery.Guarded(func() error { return k.tryPass(now) })
	if k.problem.Due(now, err) {
		k.cfg.Log.WithError(err).Error("Weights are not in force everywhere")
	}
}

func (k *Keeper) tryPass(now time.Time) error {
	demand := k.cfg.Demand()
	err := k.setUpDisks(now, &demand)
	if k.setUp.at.IsZero() { // the settings of a former instance may still be wanted
		k.report.Store(reportUnread(&demand))
		return err
	}
	enabled, byBFQ := managed(k.setUp.states, demand.Complete)
	var out divided
	if isAny := len(enabled)+len(byBFQ) > 0; isAny || k.shared || len(demand.Budgets) > 0 {
		var errs [2]error
		if !demand.Unlisted {
			out.Result, errs[0] = k.shares.Pass(now, shares.Demand{
				Disks: enabled, BFQ: byBFQ, Given: demand.given(), Budgets: demand.Budgets, Reserve: reserveOf(k.cfg.Policy()),
			})
		}
		out.root, errs[1] = k.cfg.Cgroups.Cgroup(".").ReadIOStat()
		k.shared = isAny || demand.Unlisted || errs[0] != nil
		err = errors.Join(err, errs[0], errs[1])
	}
	r := report(&demand, k.setUp.states, &out)
	for i := range k.setUp.states {
		r.Disks[i].Follow = k.follower.state(&k.setUp.states[i])
	}
	r.Promised = k.cfg.Policy().Promised()
	k.report.Store(r)
	return errors.Join(err, notKept(r.Budgets))
}

// reserveOf returns the reserve that is in force: none under mode: observe, because a rule that enforces does so for
// its own pods.
func reserveOf(p *policy.Policy) blkio.Percent {
	if p.Mode == policy.ModeObserve {
		return 0
	}
	return p.Reserve
}

// setUpDisks compares io.cost with the wanted setup if that has changed, and every setUpEvery. With an error
// about the whole, k.setUp stays as it was.
func (k *Keeper) setUpDisks(now time.Time, demand *Demand) error {
	p, used := k.cfg.Policy(), k.recent.disks(now, demand)
	same := p == k.setUp.policy && demand.Complete == k.setUp.complete && slices.Equal(used, k.setUp.disks)
	if same && !k.follower.isBroken && now.Sub(k.setUp.at) < setUpEvery {
		return k.setUp.err
	}
	disks, err := k.cfg.Disks.Disks()
	if err != nil {
		return err
	}
	used = k.recent.identify(now, disks)
	wants, unread := decide(p, k.cfg.Disks, disks, func(d blkio.Disk) bool { return slices.Contains(used, d) })
	safe := k.follower.keepMoved(wants)
	states, err := iocost.Apply(k.cfg.Cgroups, k.bounded(costDeadline), k.setQueue, wants, !demand.Complete)
	if errors.Is(err, blkio.ErrNotSupported) { // the kernel has no io.cost
		unsupported(p, states)
		err = nil
	}
	if states == nil && err != nil { // io.cost cannot be read: the setup stays, and is tried again
		return errors.Join(unread, err)
	}
	works := working(states)
	changed := !maps.Equal(works, working(k.setUp.states))
	err = errors.Join(unread, err, setUpError(states))
	k.setUp = setUp{at: now, policy: p, disks: used, states: states, complete: demand.Complete, err: err}
	k.follower.follow(states, safe)
	if changed {
		k.cfg.Changed(works)
	}
	return err
}

// maxNamed is how many of the disks with the same error an error names. The report has all.
const maxNamed = 3

// setUpError returns why io.cost could not be set up on disks. Those for which the record has no room, and those without a reserve,
// have one line.
func setUpError(states []iocost.State) error {
	var errs []error
	alike := []error{iocost.ErrNoRoom, errNoReserve}
	disks := make([][]string, len(alike))
	for i := range states {
		s := &states[i]
		switch same := slices.IndexFunc(alike, func(err error) bool { return errors.Is(s.Err, err) }); {
		case same >= 0:
			disks[same] = append(disks[same], s.Disk.String())
		case s.Err != nil:
			errs = append(errs, fmt.Errorf("set up %s on %s: %w", cmp.Or(s.By, "io.cost"), s.Disk, s.Err))
		}
	}
	for i, names := range disks {
		if len(names) > maxNamed {
			names = append(names[:maxNamed], fmt.Sprintf("and %d more", len(names)-maxNamed))
		}
		if len(names) > 0 {
			errs = append(errs, fmt.Errorf("set up io.cost on %s: %w", strings.Join(names, ", "), alike[i]))
		}
	}
	return errors.Join(errs...)
}

// working returns the disks with io.cost enabled, and those with bfq, for which the value is true.
func working(states []iocost.State) map[blkio.Dev]bool {
	out := map[blkio.Dev]bool{}
	for i := range states {
		if s := &states[i]; s.Works {
			out[s.Disk.Dev] = s.By == iocost.BFQ
		}
	}
	return out
}

// managed returns the disks on which the weights of pods are kept: those with io.cost enabled, and those with bfq, if
// that is wanted. As long as not all that is wanted is known, those that this program has enabled
// stay among them.
func managed(states []iocost.State, complete bool) (cost, bfq []blkio.Dev) {
	for _, s := range states {
		ours := !complete && !s.IsForeign(blkio.IOCostQOS)
		switch {
		case !s.Works || !s.Enabled && !ours:
		case s.By == iocost.BFQ:
			bfq = append(bfq, s.Disk.Dev)
		default:
			cost = append(cost, s.Disk.Dev)
		}
	}
	return cost, bfq
}

// Clear removes the settings of a Keeper, where no Keeper runs: the weights of cgroups above containers,
// io.cost and bfq. It returns a line for each write, also with an error. With dryRun it changes nothing.
func Clear(cgroups *cgroupfs.Hierarchy, disks Disks, dryRun bool) (steps []string, err error) {
	steps, sharesErr := shares.Clear(cgroups, dryRun)
	all, disksErr := disks.Disks()
	setups := make([]iocost.Setup, len(all))
	for i := range all {
		setups[i] = iocost.Setup{Disk: all[i].Disk, Identity: identity(&all[i]), Scheduler: all[i].Scheduler, LowLatency: all[i].LowLatency}
	}
	more, err := iocost.Clear(cgroups, disks.SetQueue, setups, dryRun)
	return append(steps, more...), errors.Join(sharesErr, disksErr, err)
}
