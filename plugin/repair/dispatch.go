package repair

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/plugin/repair/filestate"
)

// dispatch begins a pass over the files of each account on each filesystem where none is
// under way. The writers of an account take turns, so that one with many files does not
// delay another.
func (r *Repairer) dispatch(now time.Time, tasks []task) {
	todo := map[passKey][]task{}
	for _, t := range tasks {
		key := passKey{t.fs.dev, t.to.account}
		pass := r.passes.visiting[t.Inode]
		if pass == nil {
			pass = r.passes.busy[key]
		}
		switch {
		case r.watch.filesystems[key.dev] == nil || t.to.fresh.bytes == 0:
		case pass == nil:
			todo[key] = append(todo[key], t)
		case !pass.does(&t):
			reminder.Wake(pass.stop)
		}
	}
	for key, of := range todo {
		if r.budgets.early.ready(now, key.account, slice) && r.budgets.cpu.allowance(now, key.account) > 0 && r.passes.mayPass(key.account) {
			r.begin(now, key, of)
		}
	}
}

func (r *Repairer) begin(now time.Time, key passKey, tasks []task) {
	var visits []visit
	for _, t := range takeTurns(tasks, func(t *task) domain { return t.to.domain }) {
		if len(visits) == maxVisits {
			break
		}
		if t.work == move && t.state.State() != filestate.Repairing {
			if !r.budgets.files.ready(now, key.account, 1) {
				continue
			}
			r.budgets.files.spend(now, key.account, 1)
		}
		r.ledger.begin(now, &t)
		visits = append(visits, r.visit(now, &t))
	}
	if len(visits) == 0 {
		return
	}
	pass := newUnderway(now, key, r.watch.filesystems[key.dev], visits)
	r.passes.enter(pass)
	w := &worker{
		tools: r.passes.tools, budgets: r.budgets, fs: pass.fs, account: key.account,
		dirtied: pass.dirtied, stop: pass.stop, reportAlive: pass.alive,
	}
	go func() { r.passes.ended <- r.pass(w, visits) }()
}

// errPanicked is the failure of the files of a pass that panicked.
var errPanicked = errors.New("internal error, see the log")

// pass makes a pass. If it panics, all its files have failed, so that they rest.
func (r *Repairer) pass(w *worker, visits []visit) (out passed) {
	if r.problems.recovery.Step("pass over files", func() { out = r.passes.run(w, visits) }) {
		return out
	}
	out = passed{fs: w.fs, account: w.account}
	for i := range visits {
		out.outcomes = append(out.outcomes, outcome{Inode: visits[i].Inode, err: errPanicked})
	}
	return out
}

// takeTurns puts the first one of each group first, then the second ones, and so on.
func takeTurns[T any, G comparable](all []T, group func(*T) G) []T {
	turn := map[G]int{}
	turns := make([]int, len(all))
	order := make([]int, len(all))
	for i := range all {
		g := group(&all[i])
		turns[i], order[i] = turn[g], i
		turn[g]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return turns[a] - turns[b] })
	out := make([]T, len(all))
	for i, k := range order {
		out[i] = all[k]
	}
	return out
}

// visit returns the visit of a task. It covers the writes since the last visit.
func (r *Repairer) visit(now time.Time, t *task) visit {
	v := visit{
		Inode: t.Inode, work: t.work, ownerID: t.owner.id,
		fresh: t.to.fresh.bytes, drops: t.to.fresh.isMisplaced(), dropAt: t.drops.offset,
	}
	v.first, v.last = t.to.fresh.offsets()
	if t.work == drop && t.drops.leftovers > 0 {
		t.drops.leftovers--
		t.drops.leftoversAt = now.Add(leftoverEvery)
		v.first, v.last = t.to.ever.offsets()
		v.drops = true
	}
	if v.drops {
		if t.drops.passes%mappedEvery == 0 { // it may be mapped
			v.writers = r.domains.pathsOf(t.to.writers)
		}
		t.drops.passes++
	}
	if t.work == drop && t.drops.leftovers == 0 && t.drops.passes >= maxDrops {
		t.rest.begin(now) // others keep them
		t.drops.passes = 0
	}
	for i := range t.shares {
		t.shares[i].fresh = fresh{}
	}
	return v
}

func (r *Repairer) note(now time.Time, p passed) {
	r.passes.exit(passKey{p.fs.dev, p.account})
	r.metrics.cpu.Add(int64(p.cpu))
	r.problems.complain("pass "+p.fs.dev.String(), "Files of "+p.fs.mountpoint+" cannot be moved", p.err)
	r.domains.forgetPlaces()
	for i := range p.outcomes {
		r.noteFile(now, p.fs, &p.outcomes[i])
	}
	for _, in := range p.skipped {
		if f := r.ledger.files[in]; f != nil {
			r.ledger.touched[f] = true
		}
	}
	r.problems.complain("mappings", "Mapped files cannot be moved", r.passes.tools.procs.access())
}

func (r *Repairer) noteFile(now time.Time, fs *filesystem, o *outcome) {
	r.metrics.early.Add(o.written)
	f := r.ledger.files[o.Inode]
	switch {
	case f == nil:
	case errors.Is(o.err, writeback.ErrNoFile):
		r.ledger.remove(f)
	case o.err != nil:
		r.ledger.fail(now, f, o.err.Error())
		r.metrics.failed.Add(1)
		r.problems.failures.Do(func() {
			r.problems.log.WithError(o.err).Warn("Moving a file failed (status lists all; logged once a minute)")
		})
	case o.owner != 0:
		r.ledger.touched[f] = true
		f.owner, f.path, f.drops.offset = member{r.domains.of(o.owner, fs), o.owner}, o.path, o.dropAt
	}
}

// passKey identifies a pass. There is one at a time for an account and a filesystem, so
// that no account's files wait for the pass over another's.
type passKey struct {
	dev     blkio.Dev
	account account
}

// Passes hold a thread each, for as long as a disk does not answer.
const (
	maxPasses        = 256
	maxAccountPasses = 8
)

// passes has the passes under way.
type passes struct {
	tools     tools
	run       func(*worker, []visit) passed // (*worker).pass, or a fake
	ended     chan passed
	busy      map[passKey]*underway
	byAccount map[account]int               // number of passes
	visiting  map[writeback.Inode]*underway // the pass over a file
	hung      map[blkio.Dev]*filesystem     // with a pass that hung, as of the last report
}

func newPasses(t tools) passes {
	return passes{
		tools: t, run: (*worker).pass, ended: make(chan passed, 64),
		busy: map[passKey]*underway{}, byAccount: map[account]int{}, visiting: map[writeback.Inode]*underway{},
	}
}

// underway is a pass over files of one filesystem, as seen from outside.
type underway struct {
	passKey
	fs    *filesystem
	began time.Time
	seen  atomic.Int64 // time since began at which it did not hang, in nanoseconds
	files map[writeback.Inode]visit
	// dirtied notifies the pass that one of its files is written to. stop makes it end, because its files need
	// other work or none.
	dirtied, stop chan struct{}
}

func newUnderway(now time.Time, key passKey, fs *filesystem, visits []visit) *underway {
	u := &underway{
		passKey: key, fs: fs, began: now, files: map[writeback.Inode]visit{},
		dirtied: make(chan struct{}, 1), stop: make(chan struct{}, 1),
	}
	for i := range visits {
		u.files[visits[i].Inode] = visits[i]
	}
	return u
}

// alive notes that the pass does not hang. alive and hangs use the time since the pass began, which no change
// of the node's clock makes longer or shorter.
func (u *underway) alive() { u.seen.Store(int64(time.Since(u.began))) }

func (u *underway) hangs(now time.Time) bool {
	return now.Sub(u.began)-time.Duration(u.seen.Load()) > hangs
}

func (u *underway) does(t *task) bool {
	v, there := u.files[t.Inode]
	first, last := t.to.fresh.offsets()
	return there && v.work == move && t.work == move && (v.drops || !t.to.fresh.isMisplaced()) && first >= v.first && last <= v.first+v.window()
}

// notify notifies the pass over a file, if there is one, that the file is written to.
func (p *passes) notify(in writeback.Inode) bool {
	pass := p.visiting[in]
	if pass == nil {
		return false
	}
	reminder.Wake(pass.dirtied)
	return true
}

func (p *passes) enter(u *underway) {
	p.busy[u.passKey] = u
	p.byAccount[u.account]++
	for in := range u.files {
		p.visiting[in] = u
	}
}

func (p *passes) exit(key passKey) {
	u := p.busy[key]
	if u == nil {
		return
	}
	delete(p.busy, key)
	if p.byAccount[key.account]--; p.byAccount[key.account] <= 0 {
		delete(p.byAccount, key.account)
	}
	for in := range u.files {
		delete(p.visiting, in)
	}
}

// mayPass reports whether one more pass may begin for an account. If not, the passes of
// the account that wait for a write end.
func (p *passes) mayPass(a account) bool {
	if p.byAccount[a] >= maxAccountPasses {
		for key, pass := range p.busy {
			if key.account == a {
				reminder.Wake(pass.stop)
			}
		}
		return false
	}
	return len(p.busy) < maxPasses
}

// hanging returns the filesystems of passes that hang.
func (p *passes) hanging(now time.Time) map[blkio.Dev]*filesystem {
	out := map[blkio.Dev]*filesystem{}
	for _, pass := range p.busy {
		if pass.hangs(now) {
			out[pass.dev] = pass.fs
		}
	}
	return out
}

// endNeedless ends passes whose files need no move any more, or have no writer left: a
// pass keeps the filesystem from being unmounted.
func (r *Repairer) endNeedless() {
	for key, pass := range r.passes.busy {
		for in := range pass.files {
			if f := r.ledger.files[in]; r.watch.filesystems[key.dev] == nil || f == nil || f.state.State() != filestate.Repairing || !r.hasWriter(f) {
				reminder.Wake(pass.stop)
				break
			}
		}
	}
}

func (r *Repairer) hasWriter(f *file) bool {
	return slices.ContainsFunc(f.shares, func(s share) bool { return len(r.domains.pathsOf(s.writers)) > 0 })
}
