package handover

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// Volume is a filesystem with unwritten data, by one of its mountpoints.
type Volume struct {
	Path string
	Disk blkio.Dev // the disk that it is on, the limited one of several
	// FS is the kernel's number of the filesystem. It is zero if the filesystem is not mounted there any more.
	FS blkio.Dev
}

// key returns the volume without the fields that can differ between two mounts of one filesystem.
func (v Volume) key() Volume {
	if v.FS == (blkio.Dev{}) {
		return Volume{Path: v.Path}
	}
	return Volume{FS: v.FS}
}

// Unsynced has the filesystems with data of a container that may be unwritten, each one once.
type Unsynced struct {
	Volumes []Volume
	// More is true if there may be others, which could not be found.
	More bool
}

// findDeadline bounds the search, which may read a mount table that has changed.
const findDeadline = 5 * time.Second

// Storage finds filesystems and the disks that they are on. It is a *storage.Storage, which documents the methods.
type Storage interface {
	inventory.Disks
	inventory.Resolver
	Refresh(ctx context.Context) error
	Submounts(ctx context.Context, hostPath string) iter.Seq2[string, *blkio.Backing]
	FilesystemAt(mountpoint string) blkio.Dev
	Locate(ctx context.Context, hostPath string) (p string, local bool)
}

// finder finds filesystems with unwritten data.
type finder struct {
	storage Storage
	limited map[blkio.Dev]bool // disks with a limit on writes
	stacks  *inventory.Stacks  // nil if the disks below a disk are not read
	seen    map[Volume]bool    // by key
	found   []Volume
	hidden  bool // another filesystem is mounted over one of those found
}

func newFinder(s Storage, limited map[blkio.Dev]bool, st *inventory.Stacks) *finder {
	return &finder{storage: s, limited: limited, stacks: st, seen: map[Volume]bool{}}
}

func (f *finder) add(ctx context.Context, b *blkio.Backing) error {
	if b.Mountpoint == "" {
		return nil
	}
	for _, d := range b.Disks {
		isLimited, err := f.isLimited(ctx, d.Dev)
		if err != nil {
			return err
		}
		if !isLimited {
			continue
		}
		if f.isHidden(ctx, b, d) {
			f.hidden = true
			break
		}
		v := Volume{b.Mountpoint, d.Dev, f.storage.FilesystemAt(b.Mountpoint)}
		if !f.seen[v.key()] {
			f.seen[v.key()] = true
			f.found = append(f.found, v)
		}
		break
	}
	return nil
}

// isHidden reports whether the mountpoint of a filesystem leads to another filesystem. That one is a network
// filesystem or on another disk, and was mounted over the mountpoint or above it after the container had begun.
// To open or sync a network filesystem can hang. If nothing is mounted any more, the kernel wrote out the
// filesystem when it was unmounted.
func (f *finder) isHidden(ctx context.Context, b *blkio.Backing, d blkio.Disk) bool {
	if f.stacks == nil { // the node does not answer, so OnlyLocal decides
		return false
	}
	if _, local := f.storage.Locate(ctx, b.Mountpoint); !local {
		return true
	}
	now := f.storage.Resolve(ctx, b.Mountpoint)
	return now.Mountpoint == b.Mountpoint && !slices.Contains(now.Disks, d)
}

// isLimited reports whether a limit applies to I/O to a disk: its own limit, or that of a disk below it. For a
// logical volume that is the physical volume.
func (f *finder) isLimited(ctx context.Context, disk blkio.Dev) (bool, error) {
	if f.limited[disk] || f.stacks == nil {
		return f.limited[disk], nil
	}
	under := map[blkio.Dev]bool{}
	err := f.stacks.AddUnder(ctx, disk, under)
	for dev := range under {
		if f.limited[dev] {
			return true, nil
		}
	}
	return false, err
}

func (f *finder) addKnown(ctx context.Context, disks *inventory.Container) error {
	for o := range disks.Facts.Objects() { // also the writable layer: the kubelet keeps those of ended containers
		if !o.ReadOnly && !o.Injected {
			if err := f.add(ctx, o.Backing); err != nil {
				return err
			}
		}
	}
	for i := range disks.Strays {
		if err := f.add(ctx, &disks.Strays[i]); err != nil {
			return err
		}
	}
	return nil
}

// addUnresolved adds the filesystems at a mount that was not resolved so far.
func (f *finder) addUnresolved(ctx context.Context, m inventory.UnresolvedMount) error {
	if m.Self {
		b := f.storage.Resolve(ctx, m.Source)
		if b.Err != nil {
			return b.Err
		}
		if err := f.add(ctx, b); err != nil {
			return err
		}
	}
	if m.Below {
		for _, b := range f.storage.Submounts(ctx, m.Source) {
			if b.Err != nil {
				return b.Err
			}
			if err := f.add(ctx, b); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// errRemote is the error for a path that leads to a filesystem which can hang.
var errRemote = errors.New("a network filesystem, or one of a process, is mounted there")

// OnlyLocal returns a sync that fails for filesystems that are not local. Between the end of a container and
// its sync, another filesystem can be mounted at the path.
func (w *Writeout) OnlyLocal(sync func(ctx context.Context, hostPath string) error) func(ctx context.Context, hostPath string) error {
	if sync == nil {
		return nil
	}
	return func(ctx context.Context, hostPath string) error {
		_ = w.Storage.Refresh(ctx) // on an error the last mount table decides, because a sync is not retried
		if _, local := w.Storage.Locate(ctx, hostPath); !local {
			return errRemote
		}
		return sync(ctx, hostPath)
	}
}

// Find finds the filesystems to sync after a container's end. Its mounts still exist at that time. After an
// error it returns the filesystems that were known before.
func (w *Writeout) Find(ctx context.Context, left *Leftovers) Unsynced {
	if len(left.Limited) == 0 {
		return Unsynced{}
	}
	found := make(chan *finder, 1) // a call that returns too late must not write to the result
	err := w.Calls.For(ctx, left.ID, findDeadline, func(ctx context.Context) error {
		if err := w.Storage.Refresh(ctx); err != nil {
			return err
		}
		f := newFinder(w.Storage, left.Limited, inventory.NewStacks(w.Storage))
		if err := f.addKnown(ctx, left.Disks); err != nil {
			return err
		}
		for _, m := range left.Disks.Unresolved() {
			if err := f.addUnresolved(ctx, m); err != nil {
				return err
			}
		}
		found <- f
		return nil
	})
	if err == nil {
		f := <-found
		if f.hidden {
			left.Log.Info("Remaining dirty data of a container unknown: another filesystem is mounted over one that it used")
		}
		return Unsynced{f.found, f.hidden}
	}
	left.Log.WithError(err).Info("Remaining dirty data of a container unknown: keeping its pod's limits")
	f := newFinder(w.Storage, left.Limited, nil)
	_ = f.addKnown(ctx, left.Disks) // without stacks it cannot fail
	return Unsynced{f.found, true}
}
