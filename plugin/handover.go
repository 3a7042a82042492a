package plugin

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// volume is a filesystem with unwritten data, by one of its mountpoints.
type volume struct {
	path string
	disk blkio.Dev // that it is on, the limited one of several
	// fs is the kernel's number of the filesystem; zero if it is mounted there no more.
	fs blkio.Dev
}

// key is the volume without what may differ between two mounts of one filesystem.
func (v volume) key() volume {
	if v.fs == (blkio.Dev{}) {
		return volume{path: v.path}
	}
	return volume{fs: v.fs}
}

// unsynced are the filesystems that a container may have left unwritten data on, each
// one once.
type unsynced struct {
	volumes []volume
	// more is true if there may be others that could not be found out.
	more bool
}

// finder finds what is unsynced.
type finder struct {
	storage Storage
	limited map[blkio.Dev]bool // disks with a limit on writes
	stacks  *inventory.Stacks  // nil: what is below a disk is not looked at
	seen    map[volume]bool    // by key
	found   []volume
}

func newFinder(s Storage, limited map[blkio.Dev]bool, st *inventory.Stacks) *finder {
	return &finder{storage: s, limited: limited, stacks: st, seen: map[volume]bool{}}
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
		v := volume{b.Mountpoint, d.Dev, f.storage.FilesystemAt(b.Mountpoint)}
		if !f.seen[v.key()] {
			f.seen[v.key()] = true
			f.found = append(f.found, v)
		}
		break
	}
	return nil
}

// throttles reports whether a limit holds for I/O to a disk: its own, or that of a disk
// under it, such as the physical volume of a logical one.
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
func (f *finder) addKnown(ctx context.Context, c *container) error {
	if err := f.add(ctx, &c.disks.Facts.Rootfs); err != nil { // the kubelet keeps the layers of dead containers
		return err
	}
	for i := range c.disks.Facts.Mounts {
		m := &c.disks.Facts.Mounts[i]
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

// findUnsynced finds what a container has to have synced after its end: what it had is
// mounted still. c is a copy. Where a look fails, the result is what was known before.
func (p *Plugin) findUnsynced(ctx context.Context, c *container) unsynced {
	if c.exit.plan.nothing() {
		return unsynced{}
	}
	found := make(chan []volume, 1) // a call that comes too late must not write to the result
	err := p.inFlight.passes.For(ctx, c.id, lookDeadline, func(ctx context.Context) error {
		if err := p.storage.Refresh(ctx); err != nil {
			return err
		}
		f := newFinder(p.storage, c.exit.plan.limited, inventory.NewStacks(p.storage))
		if err := f.addKnown(ctx, c); err != nil {
			return err
		}
		for _, m := range c.disks.Unresolved {
			if err := f.addUnresolved(ctx, m); err != nil {
				return err
			}
		}
		found <- f.found
		return nil
	})
	if err == nil {
		return unsynced{volumes: <-found}
	}
	c.logger(p.log).WithError(err).Info("Remaining dirty data of a container unknown: keeping its pod's limits")
	f := newFinder(p.storage, c.exit.plan.limited, nil)
	_ = f.addKnown(ctx, c) // without stacks it cannot fail
	return unsynced{f.found, true}
}

// ending is the hand-over of one container that has ended. A sync can take hours, and
// tenants decide how large a pod's annotations and how many its mounts are, so ending
// keeps neither the container nor its pod.
type ending struct {
	p     *Plugin
	group *group
	id    string // of the container

	left, failed atomic.Int64 // of the syncs
	more         bool
	over         atomic.Bool
}

// writeOut has a container's filesystems synced. Once they all are it has nothing left
// to write, if they are all that it could write to.
func (p *Plugin) writeOut(ctx context.Context, c *container, u unsynced) {
	e := &ending{p: p, group: c.pod.group, id: c.id, more: u.more}
	e.left.Store(int64(len(u.volumes)))
	if len(u.volumes) == 0 {
		e.end(ctx, !e.more)
		return
	}
	// A sync waits for the data of all writers of the filesystem. This container does not
	// have to wait for a slow one of another pod: findClean sees when the kernel has
	// written out this pod's data.
	time.AfterFunc(syncPatience, func() { e.end(ctx, false) })
	for _, v := range u.volumes {
		p.exits.syncs.soon(ctx, waiter{v, e.group, e.over.Load, func(err error) { e.synced(ctx, err) }})
	}
}

func (e *ending) synced(ctx context.Context, err error) {
	if err != nil {
		e.failed.Add(1)
	}
	if e.left.Add(-1) == 0 {
		e.end(ctx, !e.more && e.failed.Load() == 0)
	}
}

// end notes how the hand-over has ended, once.
func (e *ending) end(ctx context.Context, written bool) {
	if e.over.Swap(true) {
		return
	}
	e.p.handedOver(e.group, e.id, written)
	go e.p.tidy(ctx, e.group) // other hand-overs that wait for the sync must not wait for this
}

// handedOver notes whether all that a container had to write is on its disk.
func (p *Plugin) handedOver(g *group, id string, written bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.end(id, written)
	if written {
		p.markDirty(g)
	}
}
