package repair

import (
	"context"
	"errors"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Config is what a Repairer works with. All but HostRoot and Report are required.
type Config struct {
	Log     logrus.FieldLogger
	Policy  *policy.Policy
	Storage Storage
	Cgroups *blkio.Hierarchy
	// HostRoot is where the host's root filesystem is, "/" if empty.
	HostRoot string
	// Report is a file that is to say what goes on, see Report; "": none.
	Report string
}

// How often is looked.
const (
	tick       = 50 * time.Millisecond  // at what was written, while files are to be moved
	quietTick  = 150 * time.Millisecond // and else
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
	// cpuSaved is for how long the share of a CPU is saved up that is not used: a
	// file is to move at once, and then nothing is to be done for long.
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
	// hangs is after how long a pass is told of that does not end.
	hangs = 5 * time.Second
)

// Repairer is the state of one node. Run is to be called once; Reload and the
// methods of prometheus.Collector at any time.
type Repairer struct {
	log      logrus.FieldLogger
	storage  Storage
	hostRoot string
	report   string
	policy   atomic.Pointer[policy.Policy]
	counts   counts
	census   atomic.Pointer[census]

	// Below is Run's.

	observer *writeback.Observer
	reader   *writeback.OwnerReader
	domains  *domains
	ledger   *ledger
	watched  map[blkio.Dev]*filesystem
	busy     map[blkio.Dev]*underway
	passes   chan passed
	procs    *mappings
	files    *rate.Limiter
	early    *rate.Limiter // bytes
	cpuFree  time.Time     // until then the share of a CPU is used up
	problems map[string]*reminder.Reminder
	failures rate.Sometimes // are logged, the others are counted
	reloaded time.Time
}

// New loads what looks into the kernel. Its error is writeback.ErrUnavailable where
// that is not to be had.
func New(cfg Config) (*Repairer, error) {
	observer, err := writeback.NewObserver()
	if err != nil {
		return nil, err
	}
	reader, err := writeback.NewOwnerReader()
	if err != nil {
		return nil, errors.Join(err, observer.Close())
	}
	d := newDomains(cfg.Cgroups)
	r := &Repairer{
		log: cfg.Log, storage: cfg.Storage, hostRoot: cfg.HostRoot, report: cfg.Report,
		observer: observer, reader: reader, domains: d,
		ledger:  newLedger(d.limited, d.live, d.stricter),
		watched: map[blkio.Dev]*filesystem{}, busy: map[blkio.Dev]*underway{},
		passes: make(chan passed, 64),
		procs:  &mappings{cgroups: cfg.Cgroups, proc: hostPath(cfg.HostRoot, "/proc"), busy: map[string]bool{}},
		files:  rate.NewLimiter(0, 1), early: rate.NewLimiter(0, 1),
		problems: map[string]*reminder.Reminder{}, failures: rate.Sometimes{First: 1, Interval: time.Minute},
	}
	r.Reload(cfg.Policy)
	writeback.ForgetBTF()
	debug.FreeOSMemory() // what the kernel's BTF took to read: half of the process
	return r, nil
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
			continue
		case d := <-r.observer.Foreign():
			r.hear(time.Now(), &d)
			continue
		case <-next.C:
		}
		now := time.Now()
		if since := now.Sub(refreshed); since >= max(refreshMin, refreshShare*took) || r.domains.news && since >= max(newMin, newShare*took) {
			r.refresh(ctx)
			refreshed = time.Now()
			took = refreshed.Sub(now)
		}
		next.Reset(r.step(time.Now()))
		if now.Sub(published) >= publishEvery {
			r.publish(now)
			published = now
		}
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
			delete(r.busy, p.fs.dev)
			continue
		case <-end: // a disk that does not answer
		}
		break
	}
	if err := errors.Join(r.observer.Close(), r.reader.Close()); err != nil {
		r.log.WithError(err).Warn("What looks into the kernel cannot be unloaded")
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
	r.complain("filesystems", "The filesystems with limits cannot be found", err)
	if err != nil {
		return
	}
	r.withoutSubvolumes(watched)
	devs := slices.Collect(maps.Keys(watched))
	err = r.observer.Watch(devs)
	r.complain("watch", "Who writes to which file is not seen", err)
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
		next, err := writeback.NewObserver()
		writeback.ForgetBTF()
		if err == nil {
			r.complain("reload", "A program cannot be unloaded", r.observer.Close())
			r.observer = next
		}
	}
	var err error
	if !r.observer.Subvolumes() {
		err = errNoSubvolumes
		maps.DeleteFunc(watched, isBtrfs)
	}
	r.complain("btrfs", "Files of btrfs are not given to who writes them", err)
}

var errNoSubvolumes = errors.New("the kernel's BTF does not tell of its subvolumes")

// complain logs an error when it is new, again every ten minutes while it lasts,
// and when it has passed.
func (r *Repairer) complain(key, text string, err error) {
	problem := r.problems[key]
	if problem == nil {
		problem = &reminder.Reminder{}
		r.problems[key] = problem
	}
	lasted := problem.Lasts()
	switch {
	case problem.Due(time.Now(), err):
		r.log.WithError(err).Warn(text)
	case err == nil && lasted:
		r.log.Info(text + ": no more")
	}
}

// step looks at what was written, and has done what there is to do. It returns when
// to look next.
func (r *Repairer) step(now time.Time) time.Duration {
	r.read(now)
	todo := r.act(now)
	switch {
	case len(r.watched) == 0:
		return idleTick
	case todo == 0:
		return quietTick
	}
	return tick
}

// act has done what there is to do, and returns how many files that concerns.
func (r *Repairer) act(now time.Time) int {
	p := r.policy.Load()
	r.ledger.strict = p.Writeback.Contested == policy.Strict
	r.setBudget(&p.Writeback.Budget)
	repairs := p.Writeback.Repair && p.Mode == policy.ModeEnforce
	r.domains.observed = p.Mode == policy.ModeObserve
	tasks := r.ledger.decide(now)
	r.counts.gaveUp.Store(r.ledger.gaveUp)
	for _, a := range r.ledger.takeArrivals() {
		r.counts.arrived(a.took)
		r.log.WithFields(logrus.Fields{"file": a.Inode.String(), "to": r.domains.who(a.to).String(), "took": a.took}).
			Debug("A file belongs to who writes it")
	}
	switch {
	case !repairs:
		r.ledger.pause()
	case now.After(r.cpuFree):
		r.dispatch(now, tasks)
	}
	r.recall()
	return len(tasks)
}

func (r *Repairer) setBudget(b *policy.Budget) {
	if r.files.Burst() != b.FilesPerSecond {
		r.files = rate.NewLimiter(rate.Limit(b.FilesPerSecond), b.FilesPerSecond)
	}
	if r.early.Burst() != int(b.ExtraBps) {
		r.early = rate.NewLimiter(rate.Limit(b.ExtraBps), int(b.ExtraBps))
	}
}
