package repair

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Config is what a Repairer works with. All but HostRoot and Report are required.
type Config struct {
	Log     logrus.FieldLogger
	Policy  *policy.Policy
	Storage Storage
	Cgroups Cgroups
	// Kernel is the verdict on the running kernel. Unless it is corrected files are
	// moved only if the policy says so.
	Kernel kernel.Verdict
	// HostRoot is where the host's root filesystem is, "/" if empty.
	HostRoot string
	// Report is a file that is to say what goes on, see Report; "": none.
	Report string
}

// How often is looked.
const (
	tick       = 50 * time.Millisecond  // at what was written, while files are to be moved
	quietTick  = 150 * time.Millisecond // while anything is written
	slowTick   = time.Second            // at most, while nothing is and the kernel tells; see sooner
	fileTick   = 50 * time.Microsecond  // for each file of a look, which is ten times what that takes
	idleTick   = time.Second            // while nothing is watched
	refreshMin = time.Second            // at the records; more seldom where that takes long
	// That takes 1/refreshShare of the time at most, and 1/newShare while cgroups
	// write that were not there the last time.
	refreshShare = 50
	newShare     = 10
	newMin       = 250 * time.Millisecond
	// reloadEvery is how often a new layout of the kernel's structures is looked for.
	reloadEvery  = time.Minute
	publishEvery = time.Second
	// saved is for how long what the policy allows is saved up that is not used, and
	// cpuSaved for the share of a CPU: a file is to move at once, and then nothing is to
	// be done for long.
	saved    = time.Second
	cpuSaved = 10 * time.Second
	// mappedEvery is in how many passes over a file it is looked for its mappings.
	mappedEvery = 4
	// maxDrops is after how many passes without success the pages of others are left
	// for a time.
	maxDrops = 8
	// maxVisits are the files of one pass.
	maxVisits = 32
	// shutdown is how long passes that are under way are waited for.
	shutdown = time.Second
	// hangs is how long a pass may take before it counts as hanging.
	hangs = 5 * time.Second
)

// Repairer is the state of one node. Run is to be called once; Reload and the
// methods of prometheus.Collector at any time.
type Repairer struct {
	log      logrus.FieldLogger
	storage  Storage
	hostRoot string
	report   string
	kernel   kernel.Verdict
	late     string // lateReason, or ""
	policy   atomic.Pointer[policy.Policy]
	counts   counts
	census   atomic.Pointer[census]

	// Below is Run's.

	observer observer
	load     func() (observer, error) // another observer
	cache    pageCache
	domains  *domains
	ledger   *ledger
	watched  map[blkio.Dev]*filesystem
	busy     map[passKey]*underway
	passesOf map[account]int               // how many of these
	visiting map[writeback.Inode]*underway // the pass over a file
	passes   chan passed
	pass     func(*worker, []visit) passed // what a worker does
	procs    *mappings
	// What the policy allows: files begun with, bytes written out early, seconds of a
	// CPU.
	files, early, cpu *budget
	quiet             time.Duration // between the last looks, at which nothing was to be done
	look              time.Time     // the next one
	hears             bool          // the kernel tells between looks when another's file is written to
	hung              map[blkio.Dev]*filesystem
	problems          map[string]*reminder.Reminder
	failures          rate.Sometimes // are logged, the others are counted
	reloaded          time.Time
}

// observer is what sees who writes to which file, see writeback.Observer.
type observer interface {
	Watch(devs []blkio.Dev) error
	SetAlarm() error
	Foreign() <-chan writeback.Dirtied
	Read() (found []writeback.Dirtied, lost uint64, err error)
	Subvolumes() bool
	Close() error
}

// New loads the BPF programs. Its error is writeback.ErrUnavailable where that is not
// to be had.
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
	if !observer.HasAlarm() {
		r.late = lateReason
		r.log.Warn(lateReason)
	}
	writeback.ForgetBTF()
	return r, nil
}

func newRepairer(cfg Config, o observer, cache pageCache) *Repairer {
	d := newDomains(cfg.Cgroups)
	r := &Repairer{
		log: cfg.Log, storage: cfg.Storage, hostRoot: cfg.HostRoot, report: cfg.Report, kernel: cfg.Kernel,
		observer: o, load: loadObserver, cache: cache, domains: d, ledger: newLedger(d.limited, d.live, d.stricter),
		watched: map[blkio.Dev]*filesystem{},
		busy:    map[passKey]*underway{}, passesOf: map[account]int{}, visiting: map[writeback.Inode]*underway{},
		passes: make(chan passed, 64), pass: (*worker).pass,
		procs: newMappings(cfg.Cgroups, hostPath(cfg.HostRoot, "/proc")),
		files: newBudget(saved), early: newBudget(saved), cpu: newBudget(cpuSaved),
		problems: map[string]*reminder.Reminder{}, failures: rate.Sometimes{First: 1, Interval: time.Minute},
	}
	r.Reload(cfg.Policy)
	return r
}

// loadObserver loads another observer, for which it reads the kernel's BTF again.
func loadObserver() (observer, error) {
	defer writeback.ForgetBTF()
	return writeback.NewObserver()
}

// Reload puts a policy into force.
func (r *Repairer) Reload(p *policy.Policy) { r.policy.Store(p) }

// Run repairs until ctx ends.
func (r *Repairer) Run(ctx context.Context) {
	defer r.close()
	next := time.NewTimer(0)
	defer next.Stop()
	var refreshed, published time.Time
	var took time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-r.passes:
			r.note(time.Now(), p)
			r.sooner(next, tick)
			continue
		case d := <-r.observer.Foreign():
			r.sooner(next, r.hear(time.Now(), &d))
			continue
		case <-next.C:
		}
		now := time.Now()
		if since := now.Sub(refreshed); since >= max(refreshMin, refreshShare*took) || r.domains.news && since >= max(newMin, newShare*took) {
			r.refresh(ctx)
			refreshed = time.Now()
			took = refreshed.Sub(now)
		}
		wait := r.step(time.Now())
		r.look = time.Now().Add(wait)
		next.Reset(wait)
		if now.Sub(published) >= publishEvery {
			r.publish(now)
			published = now
		}
	}
}

// sooner has the next look be no later than that: there may be something to do.
func (r *Repairer) sooner(next *time.Timer, wait time.Duration) {
	r.quiet = 0
	if at := time.Now().Add(wait); at.Before(r.look) {
		r.look = at
		next.Reset(wait)
	}
}

func (r *Repairer) close() {
	for _, pass := range r.busy {
		signal(pass.leave)
	}
	end := time.After(shutdown)
	for len(r.busy) > 0 {
		select {
		case p := <-r.passes:
			r.exit(passKey{p.fs.dev, p.account})
			continue
		case <-end: // a disk that does not answer
		}
		break
	}
	if err := errors.Join(r.observer.Close(), r.cache.Close()); err != nil {
		r.log.WithError(err).Warn("Unloading BPF programs failed")
	}
	r.removeReport()
}

// refresh reads what limits there are, and watches the filesystems that they
// concern.
func (r *Repairer) refresh(ctx context.Context) {
	r.complain("records", "Not all records can be read", r.domains.refresh())
	watched, err := onLimited(ctx, r.storage, r.domains.disks())
	if ctx.Err() != nil {
		return
	}
	r.complain("filesystems", "Finding filesystems with limits failed", err)
	if err != nil {
		return
	}
	r.withoutSubvolumes(watched)
	devs := slices.Collect(maps.Keys(watched))
	err = r.observer.Watch(devs)
	r.complain("watch", "Observing writes failed", err)
	if err == nil && len(watched) != len(r.watched) {
		r.log.WithField("filesystems", len(watched)).Debug("Watched")
	}
	r.watched = watched
	for _, f := range r.ledger.files {
		if watched[f.fs.dev] == nil {
			r.ledger.remove(f) // unmounted, or no limit concerns it any more
		}
	}
}

// withoutSubvolumes leaves out btrfs where its files cannot be told apart: it was
// loaded after this program.
func (r *Repairer) withoutSubvolumes(watched map[blkio.Dev]*filesystem) {
	isBtrfs := func(_ blkio.Dev, fs *filesystem) bool { return fs.fstype == "btrfs" }
	of := maps.Clone(watched)
	maps.DeleteFunc(of, func(d blkio.Dev, fs *filesystem) bool { return !isBtrfs(d, fs) })
	if len(of) == 0 || r.observer.Subvolumes() {
		return
	}
	if time.Since(r.reloaded) > reloadEvery {
		r.reloaded = time.Now()
		if next, err := r.load(); err == nil {
			r.ledger.full = r.counts.lost.Load() // the next one counts from 0
			r.complain("reload", "Unloading a BPF program failed", r.observer.Close())
			r.observer = next
		}
	}
	var err error
	if !r.observer.Subvolumes() {
		err = errNoSubvolumes
		maps.DeleteFunc(watched, isBtrfs)
	}
	r.complain("btrfs", "Files on btrfs are not moved", err)
}

var errNoSubvolumes = errors.New("the kernel's BTF has no types for btrfs subvolumes")

// complain logs an error when it is new, again every ten minutes while it lasts,
// and when it has passed.
func (r *Repairer) complain(key, text string, err error) {
	problem := r.problems[key]
	if err == nil {
		if problem != nil {
			r.log.Info(text + ": no more")
			delete(r.problems, key) // keys name filesystems, which come and go
		}
		return
	}
	if problem == nil {
		problem = &reminder.Reminder{}
		r.problems[key] = problem
	}
	if problem.Due(time.Now(), err) {
		r.log.WithError(err).Warn(text)
	}
}

// step looks at what was written, and has done what there is to do. It returns when
// to look next.
func (r *Repairer) step(now time.Time) time.Duration {
	found := r.read(now)
	r.apply(now)
	tasks := r.ledger.decide(now)
	r.act(now, tasks)
	work := fileTick * time.Duration(found+len(tasks))
	switch {
	case len(r.watched) == 0:
		return idleTick
	case len(tasks) > 0:
		r.quiet = 0
		return max(tick, work)
	case found > 0 || !r.hears:
		r.quiet = max(quietTick, work)
	default:
		r.quiet = min(max(2*r.quiet, quietTick), slowTick)
	}
	return r.quiet
}

// apply has the policy hold.
func (r *Repairer) apply(now time.Time) {
	p := r.policy.Load()
	r.ledger.strict = p.Writeback.Contested == policy.Strict
	r.complain("kernel", "Files are not moved to their writers on this kernel", r.gate())
	r.domains.observed = p.Mode == policy.ModeObserve
	b := &p.Writeback.Budget
	r.files.set(now, float64(b.FilesPerSecond))
	r.early.set(now, float64(b.ExtraBps))
	r.cpu.set(now, float64(b.CPU)/100)
}

// act has done what there is to do.
func (r *Repairer) act(now time.Time, tasks []task) {
	p := r.policy.Load()
	r.counts.gaveUp.Store(r.ledger.gaveUp)
	for _, a := range r.ledger.takeArrivals() {
		r.counts.arrived(a.took)
		r.log.WithFields(logrus.Fields{"file": a.Inode.String(), "to": r.domains.who(a.to).String(), "took": a.took}).
			Debug("Moved a file to its writer")
	}
	if p.Mode == policy.ModeEnforce && p.Writeback.Repair.Moves(r.kernel.Corrected()) {
		r.dispatch(now, tasks)
	} else {
		r.ledger.pause()
	}
	r.recall()
}
