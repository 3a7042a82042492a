package repair

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// watch has the observer and the filesystems that it watches.
type watch struct {
	observer    observer
	load        func() (observer, error) // loads another observer
	reloaded    time.Time
	storage     Storage
	filesystems map[blkio.Dev]*filesystem // on limited disks
}

// observer counts the writes to files by cgroup, see writeback.Observer.
type observer interface {
	Watch(devs []blkio.Dev) error
	SetAlarm() error
	Foreign() <-chan writeback.Dirtied
	Read() (found []writeback.Dirtied, lost uint64, err error)
	Subvolumes() bool
	Close() error
}

// loadObserver loads another observer, for which it reads the kernel's BTF again.
func loadObserver() (observer, error) {
	defer writeback.ForgetBTF()
	return writeback.NewObserver()
}

// refresh reads the limits, and watches the filesystems on limited disks.
func (r *Repairer) refresh(ctx context.Context) {
	r.problems.complain("records", "Not all records can be read", r.domains.refresh())
	watched, err := onLimited(ctx, r.watch.storage, r.domains.disks())
	if ctx.Err() != nil {
		return
	}
	r.problems.complain("filesystems", "Finding filesystems with limits failed", err)
	if err != nil {
		return
	}
	r.withoutSubvolumes(watched)
	devs := slices.Collect(maps.Keys(watched))
	err = r.watch.observer.Watch(devs)
	r.problems.complain("watch", "Observing writes failed", err)
	if err == nil && len(watched) != len(r.watch.filesystems) {
		r.problems.log.WithField("filesystems", len(watched)).Debug("Watched")
	}
	r.watch.filesystems = watched
	for _, f := range r.ledger.files {
		if watched[f.fs.dev] == nil {
			r.ledger.remove(f) // unmounted, or no limit concerns it any more
		}
	}
}

// withoutSubvolumes leaves out btrfs if its subvolumes cannot be distinguished, because it was loaded after
// this program.
func (r *Repairer) withoutSubvolumes(watched map[blkio.Dev]*filesystem) {
	isBtrfs := func(_ blkio.Dev, fs *filesystem) bool { return fs.fstype == "btrfs" }
	of := maps.Clone(watched)
	maps.DeleteFunc(of, func(d blkio.Dev, fs *filesystem) bool { return !isBtrfs(d, fs) })
	if len(of) == 0 || r.watch.observer.Subvolumes() {
		return
	}
	if time.Since(r.watch.reloaded) > reloadEvery {
		r.watch.reloaded = time.Now()
		if next, err := r.watch.load(); err == nil {
			r.ledger.full = r.metrics.lost.Load() // the next one counts from 0
			r.problems.complain("reload", "Unloading a BPF program failed", r.watch.observer.Close())
			r.watch.observer = next
		}
	}
	var err error
	if !r.watch.observer.Subvolumes() {
		err = errNoSubvolumes
		maps.DeleteFunc(watched, isBtrfs)
	}
	r.problems.complain("btrfs", "Files on btrfs are not moved", err)
}

var errNoSubvolumes = errors.New("the kernel's BTF has no types for btrfs subvolumes")
