package repair

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
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
	publishEvery = time.Second
	// mappedEvery is in how many passes over a file it is looked for its mappings.
	mappedEvery = 4
	// maxVisits are the files of one pass.
	maxVisits = 32
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
	busy     map[blkio.Dev]time.Time // since when a pass is under way there
	passes   chan passed
	procs    *mappings
	files    *rate.Limiter
	early    *rate.Limiter // bytes
	cpuFree  time.Time     // until then the share of a CPU is used up
	said     map[string]string
	lost     uint64
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
		ledger:  &ledger{files: map[writeback.Inode]*file{}, limited: d.limited, stricter: d.stricter},
		watched: map[blkio.Dev]*filesystem{}, busy: map[blkio.Dev]time.Time{},
		passes: make(chan passed, 64),
		procs:  &mappings{cgroups: cfg.Cgroups, proc: hostPath(cfg.HostRoot, "/proc")},
		files:  rate.NewLimiter(0, 1), early: rate.NewLimiter(0, 1),
		said: map[string]string{},
	}
	r.Reload(cfg.Policy)
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
		case <-next.C:
		}
		now := time.Now()
		if since := now.Sub(refreshed); since >= max(refreshMin, refreshShare*took) || r.domains.news && since >= newShare*took {
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
	devs := make([]blkio.Dev, 0, len(watched))
	for dev := range watched {
		devs = append(devs, dev)
	}
	err = r.observer.Watch(devs)
	r.complain("watch", "Who writes to which file is not seen", err)
	if err == nil && len(watched) != len(r.watched) {
		r.log.WithField("filesystems", len(watched)).Debug("Watched")
	}
	r.watched = watched
}

// complain logs an error when it is new, and when it has passed.
func (r *Repairer) complain(key, text string, err error) {
	now := ""
	if err != nil {
		now = err.Error()
	}
	before := r.said[key]
	r.said[key] = now
	switch {
	case now == before:
	case err == nil:
		r.log.Info(text + ": no more")
	default:
		r.log.WithError(err).Warn(text)
	}
}

// step looks at what was written, and has done what there is to do. It returns when
// to look next.
func (r *Repairer) step(now time.Time) time.Duration {
	r.read(now)
	p := r.policy.Load()
	r.ledger.strict = p.Writeback.Contested == policy.Strict
	r.setBudget(&p.Writeback.Budget)
	repairs := p.Writeback.Repair && p.Mode == policy.ModeEnforce
	tasks := r.ledger.decide(now, func() bool { return repairs && r.files.AllowN(now, 1) })
	for _, a := range r.ledger.takeArrivals() {
		r.counts.arrived(a.took)
		r.log.WithFields(logrus.Fields{"file": a.Inode.String(), "to": r.domains.who(a.to).String(), "took": a.took}).
			Debug("A file belongs to who writes it")
	}
	if repairs && now.After(r.cpuFree) {
		r.dispatch(now, tasks)
	}
	switch {
	case len(r.watched) == 0:
		return idleTick
	case len(tasks) == 0:
		return quietTick
	}
	return tick
}

func (r *Repairer) setBudget(b *policy.Budget) {
	if r.files.Burst() != b.FilesPerSecond {
		r.files = rate.NewLimiter(rate.Limit(b.FilesPerSecond), b.FilesPerSecond)
	}
	if r.early.Burst() != int(b.ExtraBps) {
		r.early = rate.NewLimiter(rate.Limit(b.ExtraBps), int(b.ExtraBps))
	}
}

// read brings what was written into the ledger.
func (r *Repairer) read(now time.Time) {
	if len(r.watched) == 0 {
		return
	}
	found, lost, err := r.observer.Read()
	r.complain("read", "Who writes to which file is not seen", err)
	r.counts.lost.Store(lost)
	if lost > r.lost {
		r.complain("lost", "More files are written to than are seen", errTooMany)
		r.lost = lost
	}
	r.domains.moment()
	for i := range found {
		if s, ok := r.sampleOf(&found[i]); ok {
			r.ledger.add(now, &s)
			r.count(&s)
		}
	}
}

var errTooMany = errors.New("some of what was written is not known, see the metric nri_blkio_writeback_lost_bytes_total")

// btrfsRootTree is where btrfs has inodes for its own metadata, which no cgroup is
// charged for by its own will (BTRFS_ROOT_TREE_OBJECTID).
const btrfsRootTree = 1

func (r *Repairer) sampleOf(d *writeback.Dirtied) (sample, bool) {
	fs := r.watched[d.Dev]
	if fs == nil || d.Root == btrfsRootTree {
		return sample{}, false
	}
	owner, charged := d.Owner, d.Charged
	if charged == 0 {
		charged = d.Writer // it is not known
	}
	if owner == 0 {
		owner = charged // to whom the kernel is about to give it
	}
	return sample{
		inode: d.Inode, fs: fs, bytes: d.Bytes, first: d.First, last: d.Last,
		writerID: d.Writer, ownerID: owner,
		writer: r.domains.of(d.Writer, fs), owner: r.domains.of(owner, fs), charged: r.domains.of(charged, fs),
	}, true
}

func (r *Repairer) count(s *sample) {
	if !r.ledger.concerns(s.writer, s.owner) {
		return
	}
	if s.writer == s.owner {
		r.counts.right.Add(s.bytes)
	} else {
		r.counts.wrong.Add(s.bytes)
	}
}

// dispatch has passes made over the files of each filesystem where none is under
// way.
func (r *Repairer) dispatch(now time.Time, tasks []task) {
	visits := map[*filesystem][]visit{}
	for _, t := range tasks {
		if _, busy := r.busy[t.fs.dev]; busy || len(visits[t.fs]) == maxVisits || t.to.fresh == 0 {
			continue
		}
		visits[t.fs] = append(visits[t.fs], r.visit(&t))
	}
	for fs, todo := range visits {
		r.busy[fs.dev] = now
		w := worker{reader: r.reader, fs: fs, hostRoot: r.hostRoot, procs: r.procs}
		allowance := uint64(max(0, r.early.TokensAt(now)))
		go func() { r.passes <- w.pass(todo, allowance) }()
	}
}

// visit is what is to be done now about a task, by what was written since the last
// time.
func (r *Repairer) visit(t *task) visit {
	v := visit{
		Inode: t.Inode, work: t.work, ownerID: t.ownerID,
		first: int64(t.to.first), last: int64(t.to.last), fresh: t.to.fresh,
		drops: float64(t.to.freshWrong) > drifting*float64(t.to.fresh),
	}
	if v.drops {
		if t.drops++; t.drops%mappedEvery == 1 { // it may be mapped
			v.writers = r.domains.pathsOf(t.to.writers)
		}
	} else {
		t.drops = 0
	}
	for i := range t.shares {
		t.shares[i].fresh, t.shares[i].freshWrong = 0, 0
	}
	return v
}

// note takes what came of a pass.
func (r *Repairer) note(now time.Time, p passed) {
	delete(r.busy, p.fs.dev)
	r.counts.cpu.Add(int64(p.cpu))
	share := time.Duration(r.policy.Load().Writeback.Budget.CPU)
	r.cpuFree = later(r.cpuFree, now.Add(-publishEvery)).Add(p.cpu * 100 / share)
	r.complain("pass "+p.fs.dev.String(), "Files of "+p.fs.mountpoint+" cannot be given to who writes them", p.err)
	r.domains.moment()
	for i := range p.outcomes {
		r.noteFile(now, p.fs, &p.outcomes[i])
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (r *Repairer) noteFile(now time.Time, fs *filesystem, o *outcome) {
	r.counts.early.Add(o.written)
	r.early.AllowN(now, int(min(o.written, uint64(r.early.Burst()))))
	f := r.ledger.files[o.Inode]
	switch {
	case f == nil:
	case errors.Is(o.err, writeback.ErrNoFile):
		delete(r.ledger.files, o.Inode)
	case o.err != nil:
		f.fail(now, o.err.Error())
		r.counts.failed.Add(1)
		r.complain("file", "A file cannot be given to who writes it", o.err)
	case o.owner != 0:
		f.owner, f.ownerID, f.path = r.domains.of(o.owner, fs), o.owner, o.path
	}
}
