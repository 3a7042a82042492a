package repair

import (
	"sync/atomic"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/plugin/repair/filestate"
)

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

// does reports whether the pass does the work of a task already.
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

// enter notes a pass that begins.
func (p *passes) enter(u *underway) {
	p.busy[u.passKey] = u
	p.byAccount[u.account]++
	for in := range u.files {
		p.visiting[in] = u
	}
}

// exit notes that a pass has ended.
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

// hasWriter reports whether the cgroup of a writer of the file exists.
func (r *Repairer) hasWriter(f *file) bool {
	for i := range f.shares {
		if len(r.domains.pathsOf(f.shares[i].writers)) > 0 {
			return true
		}
	}
	return false
}
