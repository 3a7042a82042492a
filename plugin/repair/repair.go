// Package repair moves files to their writers. It observes which cgroup writes to which file, and makes the
// kernel move a file to its writer where a limit depends on the owner.
//
// It reads the limits from the records on the cgroups, and shares nothing with the rest of the plugin apart
// from them. So it can run in a separate process. Data flows one way: the counts of dirty pages go to the
// ledger, the ledger decides which files to move, and passes move them, each on one filesystem.
package repair

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Config configures a Repairer. All fields but HostRoot, Report, PolicyRejected and Recovery are required.
type Config struct {
	Log     logrus.FieldLogger
	Policy  *policy.Policy
	Storage Storage
	Cgroups Cgroups
	// Kernel is the verdict on the running kernel. On a kernel without the corrections,
	// files are moved only if the policy requires it.
	Kernel kernel.Verdict
	// HostRoot is the directory at which the host's root filesystem is mounted. "" means
	// "/".
	HostRoot string
	// Report is the path of the file for the Report. "" means none.
	Report string
	// PolicyRejected returns the reason why the policy file was rejected, or "". It is for the Report.
	PolicyRejected func() string
	// Recovery recovers from panics. If it is nil, a panic ends the process.
	Recovery *recovery.Recovery
}

// Intervals of the Repairer.
const (
	tick       = 50 * time.Millisecond  // between reads of the writes, while files may be moved
	writesTick = 150 * time.Millisecond // while there are writes
	slowTick   = time.Second            // at most, while there are none and the alarm is set; see sooner
	fileTick   = 50 * time.Microsecond  // for each file that was read, which is ten times its CPU time
	idleTick   = time.Second            // while nothing is watched
	refreshMin = time.Second            // between reads of the records; longer where that takes long
	// Reading the records takes at most 1/refreshShare of the time, and 1/newShare while
	// cgroups write that are newer than the last read.
	refreshShare = 50
	newShare     = 10
	newMin       = 250 * time.Millisecond
	// reloadEvery is how often the layout of the kernel's structures is read again.
	reloadEvery  = time.Minute
	publishEvery = time.Second
	// mappedEvery is the number of passes over a file of which one reads its mappings.
	mappedEvery = 4
	// maxDrops is the number of passes without success after which the file rests, with
	// pages that are charged to others.
	maxDrops = 8
	// maxVisits are the files of one pass.
	maxVisits = 32
	// shutdown is how long close waits for passes.
	shutdown = time.Second
	// hangs is how long a pass may take before it counts as hanging.
	hangs = 5 * time.Second
)

// Repairer moves the files of one node. Run may be called once. Reload and the methods of
// prometheus.Collector may be called at any time.
type Repairer struct {
	report  string // file, "" for none
	gate    gate
	metrics metrics

	// Only the goroutine of Run uses the fields below.

	watch    watch
	domains  *domains
	ledger   *ledger
	passes   passes
	budgets  budgets
	pace     pace
	problems problems
}

// New loads the BPF programs. Its error wraps writeback.ErrUnavailable if the kernel does
// not load them.
func New(cfg Config) (*Repairer, error) {
	observer, err := writeback.NewObserver()
	if err != nil {
		return nil, err
	}
	owners, err := writeback.NewOwnerReader()
	if err != nil {
		return nil, errors.Join(err, observer.Close())
	}
	r := newRepairer(cfg, observer, kernelCache{owners})
	writeback.ForgetBTF()
	return r, nil
}

func newRepairer(cfg Config, o observer, cache pageCache) *Repairer {
	d := newDomains(cfg.Cgroups)
	procs := newMappings(cfg.Cgroups, hostPath(cfg.HostRoot, "/proc"))
	procs.recovery = cfg.Recovery
	r := &Repairer{
		report: cfg.Report, gate: gate{kernel: cfg.Kernel, rejected: cfg.PolicyRejected},
		watch:   watch{observer: o, load: loadObserver, storage: cfg.Storage, filesystems: map[blkio.Dev]*filesystem{}},
		domains: d, ledger: newLedger(d),
		passes:  newPasses(tools{cache, procs, cfg.HostRoot}),
		budgets: budgets{files: newBudget(saved), early: newBudget(saved), cpu: newBudget(cpuSaved)}, problems: newProblems(cfg.Log, cfg.Recovery),
	}
	r.Reload(cfg.Policy)
	return r
}

// Reload puts a policy into force.
func (r *Repairer) Reload(p *policy.Policy) { r.gate.policy.Store(p) }

// Run observes writes and moves files until ctx ends.
func (r *Repairer) Run(ctx context.Context) {
	defer r.close()
	next := time.NewTimer(0)
	defer next.Stop()
	var done schedule
	for ctx.Err() == nil {
		if !r.problems.recovery.Step("move files", func() { r.turn(ctx, next, &done) }) {
			r.startOver()
			r.pace.set(next, recovery.Pause)
		}
	}
}

// schedule has the times of the work that not every turn does.
type schedule struct {
	refreshed, published time.Time
	took                 time.Duration // by the last refresh
}

// turn waits for an event or the time of the next read, and does the work.
func (r *Repairer) turn(ctx context.Context, next *time.Timer, done *schedule) {
	select {
	case <-ctx.Done():
		return
	case p := <-r.passes.ended:
		r.note(time.Now(), p)
		r.pace.sooner(next, tick)
		return
	case d := <-r.watch.observer.Foreign():
		r.pace.sooner(next, r.onAlarm(time.Now(), &d))
		return
	case <-next.C:
	}
	now := time.Now()
	if since := now.Sub(done.refreshed); since >= max(refreshMin, refreshShare*done.took) || r.domains.news && since >= max(newMin, newShare*done.took) {
		r.refresh(ctx)
		done.refreshed = time.Now()
		done.took = done.refreshed.Sub(now)
	}
	wait := r.step(time.Now())
	r.pace.set(next, wait)
	if now.Sub(done.published) >= publishEvery {
		r.publish(now)
		done.published = now
	}
}

// startOver replaces the ledger, which a turn that panicked may have left half changed. What was in
// it comes back with the next writes. Passes under way go on, and find their files unknown.
func (r *Repairer) startOver() {
	old := r.ledger
	r.ledger = newLedger(r.domains)
	r.ledger.strict, r.ledger.full, r.ledger.gaveUp = old.strict, old.full, old.gaveUp
}

func (r *Repairer) close() {
	for _, pass := range r.passes.busy {
		reminder.Wake(pass.stop)
	}
	end := time.After(shutdown)
	for len(r.passes.busy) > 0 {
		select {
		case p := <-r.passes.ended:
			r.passes.exit(passKey{p.fs.dev, p.account})
			continue
		case <-end: // a disk that does not answer
		}
		break
	}
	r.passes.tools.cache.Close()
	if err := r.watch.observer.Close(); err != nil {
		r.problems.log.WithError(err).Warn("Unloading BPF programs failed")
	}
	if r.report != "" {
		_ = hostfs.Remove(r.report) // readers recognize an old report by its time
	}
}

// step reads the writes, and begins the passes that follow from them. It returns the time
// until the next step.
func (r *Repairer) step(now time.Time) time.Duration {
	found := r.read(now)
	r.apply(now)
	tasks := r.ledger.decide(now)
	r.act(now, tasks)
	if len(r.watch.filesystems) == 0 {
		return idleTick
	}
	return r.pace.next(found, len(tasks))
}

func (r *Repairer) apply(now time.Time) {
	p := r.gate.policy.Load()
	r.ledger.strict = p.Writeback.Contested == policy.Strict
	r.problems.complain("kernel", "Files are not moved to their writers on this kernel", r.gate.reason())
	r.domains.observed = !p.Enforces()
	r.budgets.set(now, &p.Writeback.Budget)
}

func (r *Repairer) act(now time.Time, tasks []task) {
	r.metrics.gaveUp.Store(r.ledger.gaveUp)
	for _, a := range r.ledger.takeMoved() {
		r.metrics.countMove(a.took)
		r.problems.log.WithFields(logrus.Fields{"file": a.Inode.String(), "to": r.domains.participant(a.to).String(), "took": a.took}).
			Debug("Moved a file to its writer")
	}
	if r.gate.opens() {
		r.dispatch(now, tasks)
	} else {
		r.ledger.pause(now)
	}
	r.endNeedless()
}

// pace is the interval at which the Repairer reads the writes.
type pace struct {
	idle     time.Duration // the last interval, while there was no task; 0 after a task
	nextRead time.Time     // time of the next read
	hasAlarm bool          // the kernel reports between reads that a cgroup writes to another's file
}

// next returns the time until the next read, by the files and tasks that the last one found.
func (p *pace) next(found, tasks int) time.Duration {
	work := fileTick * time.Duration(found+tasks)
	switch {
	case tasks > 0:
		p.idle = 0
		return max(tick, work)
	case found > 0 || !p.hasAlarm:
		p.idle = max(writesTick, work)
	default:
		p.idle = min(max(2*p.idle, writesTick), slowTick)
	}
	return p.idle
}

func (p *pace) set(timer *time.Timer, wait time.Duration) {
	p.nextRead = time.Now().Add(wait)
	timer.Reset(wait)
}

// sooner makes the next read come after wait at the latest, since there may be a task.
func (p *pace) sooner(timer *time.Timer, wait time.Duration) {
	p.idle = 0
	if time.Now().Add(wait).Before(p.nextRead) {
		p.set(timer, wait)
	}
}

// problems logs errors. Those that last have keys.
type problems struct {
	log      logrus.FieldLogger
	lasting  map[string]*reminder.Reminder
	failures rate.Sometimes // of single files; the others are counted
	recovery *recovery.Recovery
}

func newProblems(log logrus.FieldLogger, panics *recovery.Recovery) problems {
	return problems{
		log: log, lasting: map[string]*reminder.Reminder{}, failures: rate.Sometimes{First: 1, Interval: time.Minute},
		recovery: panics,
	}
}

// complain logs an error when it is new, again every ten minutes while it lasts,
// and when it has passed.
func (p *problems) complain(key, text string, err error) {
	problem := p.lasting[key]
	if err == nil {
		if problem != nil {
			p.log.Info(text + ": no more")
			delete(p.lasting, key) // keys name filesystems, which come and go
		}
		return
	}
	if problem == nil {
		problem = &reminder.Reminder{}
		p.lasting[key] = problem
	}
	if problem.Due(time.Now(), err) {
		p.log.WithError(err).Warn(text)
	}
}

// gate decides whether files are moved, by the policy and the kernel.
type gate struct {
	policy atomic.Pointer[policy.Policy]
	kernel kernel.Verdict
	// rejected returns the reason why the policy file was rejected, or "". It may be nil.
	rejected func() string
}

// rejection returns the reason why a newer policy than that of the gate was rejected, or "".
func (g *gate) rejection() string {
	if g.rejected == nil {
		return ""
	}
	return g.rejected()
}

// opens reports whether files may be moved.
func (g *gate) opens() bool {
	p := g.policy.Load()
	return p.Enforces() && p.Writeback.Repair.Moves(g.kernel.Corrected())
}

// reason returns the reason why the policy "auto" moves no files on this kernel, or nil.
func (g *gate) reason() error {
	p := g.policy.Load()
	if p.Writeback.Repair != policy.RepairAuto || p.Writeback.Repair.Moves(g.kernel.Corrected()) {
		return nil
	}
	return fmt.Errorf("%s; writeback.repair: true in the policy overrides this", g.kernel)
}

// mode returns the mode of a report, and the reason if the kernel keeps files from being moved.
func (g *gate) mode() (mode, reason string) {
	p := g.policy.Load()
	if !p.Enforces() || p.Writeback.Repair == policy.RepairOff {
		return ModeObserve, ""
	}
	if err := g.reason(); err != nil {
		return ModeGated, err.Error()
	}
	return ModeRepair, ""
}
