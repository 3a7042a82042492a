package repair

import (
	"sync/atomic"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/repair/filestate"
)

// passKey tells passes apart: there is one at a time for an account and a filesystem, so that no
// account's files wait for the pass over another's.
type passKey struct {
	dev     blkio.Dev
	account account
}

// Passes hold a thread each, for as long as a disk does not answer.
const (
	maxPasses        = 256
	maxAccountPasses = 8
)

// passes are those under way.
type passes struct {
	tools    tools
	run      func(*worker, []visit) passed // a worker's work
	ended    chan passed
	busy     map[passKey]*underway
	of       map[account]int               // how many of these
	visiting map[writeback.Inode]*underway // the pass over a file
	hung     map[blkio.Dev]*filesystem     // of passes that did not end, as of the last report
}

func newPasses(t tools) passes {
	return passes{
		tools: t, run: (*worker).pass, ended: make(chan passed, 64),
		busy: map[passKey]*underway{}, of: map[account]int{}, visiting: map[writeback.Inode]*underway{},
	}
}

// underway is a pass over files of one filesystem, as seen from outside.
type underway struct {
	passKey
	fs    *filesystem
	began time.Time
	seen  atomic.Int64 // how long after that it was known not to hang, in nanoseconds
	files map[writeback.Inode]visit
	// dirtied tells it that one of its files is written to, leave that there is
	// something else to be done there, or nothing any more.
	dirtied, leave chan struct{}
}

func newUnderway(now time.Time, key passKey, fs *filesystem, visits []visit) *underway {
	u := &underway{
		passKey: key, fs: fs, began: now, files: map[writeback.Inode]visit{},
		dirtied: make(chan struct{}, 1), leave: make(chan struct{}, 1),
	}
	for i := range visits {
		u.files[visits[i].Inode] = visits[i]
	}
	return u
}

// alive and hangs go by the time since the pass began, which no change of the node's
// clock makes longer or shorter.
func (u *underway) alive() { u.seen.Store(int64(time.Since(u.began))) }

func (u *underway) hangs(now time.Time) bool {
	return now.Sub(u.began)-time.Duration(u.seen.Load()) > hangs
}

// does says that the pass is at this already.
func (u *underway) does(t *task) bool {
	v, there := u.files[t.Inode]
	first, last := t.to.fresh.offsets()
	return there && v.work == move && t.work == move && (v.drops || !t.to.fresh.drifts()) && first >= v.first && last <= v.first+v.window()
}

// tell tells a pass that a file is written to, if it is one of its own.
func (p *passes) tell(in writeback.Inode) bool {
	pass := p.visiting[in]
	if pass == nil {
		return false
	}
	signal(pass.dirtied)
	return true
}

// enter notes a pass that begins.
func (p *passes) enter(u *underway) {
	p.busy[u.passKey] = u
	p.of[u.account]++
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
	if p.of[key.account]--; p.of[key.account] <= 0 {
		delete(p.of, key.account)
	}
	for in := range u.files {
		delete(p.visiting, in)
	}
}

// mayPass says that one more pass may begin for an account. If not, those of its
// passes end that wait for something.
func (p *passes) mayPass(a account) bool {
	if p.of[a] >= maxAccountPasses {
		for key, pass := range p.busy {
			if key.account == a {
				signal(pass.leave)
			}
		}
		return false
	}
	return len(p.busy) < maxPasses
}

// hanging are the filesystems of passes that do not end.
func (p *passes) hanging(now time.Time) map[blkio.Dev]*filesystem {
	out := map[blkio.Dev]*filesystem{}
	for _, pass := range p.busy {
		if pass.hangs(now) {
			out[pass.dev] = pass.fs
		}
	}
	return out
}

// recall ends passes whose files need no move any more, or have no writer left: a pass
// keeps the filesystem from being unmounted.
func (r *Repairer) recall() {
	for key, pass := range r.passes.busy {
		for in := range pass.files {
			if f := r.ledger.files[in]; r.watch.filesystems[key.dev] == nil || f == nil || f.state.State() != filestate.Repairing || !r.written(f) {
				signal(pass.leave)
				break
			}
		}
	}
}

// written marks that a file's writer is active.
func (r *Repairer) written(f *file) bool {
	for i := range f.shares {
		if len(r.domains.pathsOf(f.shares[i].writers)) > 0 {
			return true
		}
	}
	return false
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // there is one
	}
}
