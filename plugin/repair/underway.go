package repair

import (
	"sync/atomic"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// underway is a pass over files of one filesystem, as seen from outside.
type underway struct {
	seen  atomic.Int64 // in nanoseconds of the Unix epoch: when it was known not to hang
	files map[writeback.Inode]visit
	// dirtied tells it that one of its files is written to, leave that there is
	// something else to be done there, or nothing any more.
	dirtied, leave chan struct{}
}

func newUnderway(now time.Time, visits []visit) *underway {
	u := &underway{files: map[writeback.Inode]visit{}, dirtied: make(chan struct{}, 1), leave: make(chan struct{}, 1)}
	for i := range visits {
		u.files[visits[i].Inode] = visits[i]
	}
	u.seen.Store(now.UnixNano())
	return u
}

func (u *underway) alive() { u.seen.Store(time.Now().UnixNano()) }

func (u *underway) hangs(now time.Time) bool { return now.UnixNano()-u.seen.Load() > int64(hangs) }

// does says that the pass is at this already.
func (u *underway) does(t *task) bool {
	v, there := u.files[t.Inode]
	return there && v.work == move && t.work == move && (v.drops || !t.to.drifts()) &&
		int64(min(t.to.first, maxOffset)) >= v.first && int64(min(t.to.last, maxOffset)) <= v.first+v.window()
}

// tell tells a pass that a file is written to, if it is one of its own.
func (r *Repairer) tell(in writeback.Inode) bool {
	pass := r.busy[in.Dev]
	if pass == nil {
		return false
	}
	_, its := pass.files[in]
	if its {
		signal(pass.dirtied)
	}
	return its
}

// recall has passes end whose files are not to be moved any more, or have nobody left
// who writes to them: they keep the filesystem from being unmounted.
func (r *Repairer) recall() {
	for dev, pass := range r.busy {
		for in := range pass.files {
			if f := r.ledger.files[in]; r.watched[dev] == nil || f == nil || f.state != StateRepairing || !r.written(f) {
				signal(pass.leave)
				break
			}
		}
	}
}

// written says that who writes to a file is there.
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
