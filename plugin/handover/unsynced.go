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
	Disk blkio.Dev // that it is on, the limited one of several
	// FS is the kernel's number of the filesystem; zero if it is mounted there no more.
	FS blkio.Dev
}

// key is the volume without what may differ between two mounts of one filesystem.
func (v Volume) key() Volume {
	if v.FS == (blkio.Dev{}) {
		return Volume{Path: v.Path}
	}
	return Volume{FS: v.FS}
}

// Unsynced are the filesystems that a container may have left unwritten data on, each
// one once.
type Unsynced struct {
	Volumes []Volume
	// More is true if there may be others that could not be found out.
	More bool
}

// lookDeadline bounds the search: it may read a mount table that has changed.
const lookDeadline = 5 * time.Second

// Storage finds filesystems and the disks that they are on; a *storage.Storage.
type Storage interface {
	inventory.Disks
	inventory.Resolver
	// Refresh re-reads the mount table if the kernel says that it changed.
	Refresh(ctx context.Context) error
	// Submounts gives all mounts below hostPath.
	Submounts(ctx context.Context, hostPath string) iter.Seq2[string, blkio.Backing]
	// FilesystemAt gives the number of the filesystem that is mounted at a path of the
	// host, or zero if none is.
	FilesystemAt(mountpoint string) blkio.Dev
	// Locate resolves a path of the host. local reports whether a lookup there waits
	// neither for a network nor for another process.
	Locate(ctx context.Context, hostPath string) (p string, local bool)
}

// finder finds what is unsynced.
type finder struct {
	storage Storage
	limited map[blkio.Dev]bool // disks with a limit on writes
	stacks  *inventory.Stacks  // nil: what is below a disk is not looked at
	seen    map[Volume]bool    // by key
	found   []Volume
	hidden  bool // another filesystem is mounted over one of them
}

func newFinder(s Storage, limited map[blkio.Dev]bool, st *inventory.Stacks) *finder {
	return &finder{storage: s, limited: limited, stacks: st, seen: map[Volume]bool{}}
}

// add adds the filesystem of b if a write to it is a write to a limited disk.
func (f *finder) add(ctx context.Context, b *blkio.Backing) error {
	if b.Mountpoint == "" {
		return nil
	}
	for _, d := range b.Disks {
		isLimited, err := f.throttles(ctx, d.Dev)
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

// isHidden reports whether the mountpoint of a filesystem leads to another one: to a network
// filesystem, or to one on another disk, which was mounted over it or above it after the container
// had begun. To open or sync a network filesystem can hang. Where nothing is mounted any more, the
// filesystem was written when it was unmounted.
func (f *finder) isHidden(ctx context.Context, b *blkio.Backing, d blkio.Disk) bool {
	if f.stacks == nil { // the node does not answer; see OnlyLocal
		return false
	}
	if _, local := f.storage.Locate(ctx, b.Mountpoint); !local {
		return true
	}
	now := f.storage.Resolve(ctx, b.Mountpoint)
	return now.Mountpoint == b.Mountpoint && !slices.Contains(now.Disks, d)
}

// throttles reports whether a limit holds for I/O to a disk: its own, or that of a disk
// under it, such as the physical Volume of a logical one.
func (f *finder) throttles(ctx context.Context, disk blkio.Dev) (bool, error) {
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

// addKnown adds what the container was seen to have, and can write to.
func (f *finder) addKnown(ctx context.Context, disks *inventory.Container) error {
	c := &disks.Facts
	if err := f.add(ctx, &c.Rootfs); err != nil { // the kubelet keeps the layers of dead containers
		return err
	}
	for i := range c.Mounts {
		m := &c.Mounts[i]
		if !m.ReadOnly && !m.Injected {
			if err := f.add(ctx, &m.Backing); err != nil {
				return err
			}
		}
		for k := range m.Below { // read-only does not reach those
			if err := f.add(ctx, &m.Below[k].Backing); err != nil {
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

// addUnresolved adds what is at a mount that was not resolved so far.
func (f *finder) addUnresolved(ctx context.Context, m inventory.UnresolvedMount) error {
	if m.Self {
		b := f.storage.Resolve(ctx, m.Source)
		if b.Err != nil {
			return b.Err
		}
		if err := f.add(ctx, &b); err != nil {
			return err
		}
	}
	if m.Below {
		for _, b := range f.storage.Submounts(ctx, m.Source) {
			if b.Err != nil {
				return b.Err
			}
			if err := f.add(ctx, &b); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// errRemote is for a path that leads to a filesystem which can hang.
var errRemote = errors.New("a network filesystem, or one of a process, is mounted there")

// OnlyLocal returns a sync of local filesystems only: between the end of a container and its sync,
// another filesystem can be mounted at the path.
func (w *Writeout) OnlyLocal(sync func(ctx context.Context, hostPath string) error) func(ctx context.Context, hostPath string) error {
	if sync == nil {
		return nil
	}
	return func(ctx context.Context, hostPath string) error {
		_ = w.Storage.Refresh(ctx) // where it fails the last mount table decides: a sync is not tried again
		if _, local := w.Storage.Locate(ctx, hostPath); !local {
			return errRemote
		}
		return sync(ctx, hostPath)
	}
}

// Find finds what a container has to have synced after its end: what it had is mounted
// still. Where a look fails, the result is what was known before.
func (w *Writeout) Find(ctx context.Context, left *Left) Unsynced {
	if len(left.Limited) == 0 {
		return Unsynced{}
	}
	found := make(chan *finder, 1) // a call that comes too late must not write to the result
	err := w.Looks.For(ctx, left.ID, lookDeadline, func(ctx context.Context) error {
		if err := w.Storage.Refresh(ctx); err != nil {
			return err
		}
		f := newFinder(w.Storage, left.Limited, inventory.NewStacks(w.Storage))
		if err := f.addKnown(ctx, left.Disks); err != nil {
			return err
		}
		for _, m := range left.Disks.Unresolved {
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
