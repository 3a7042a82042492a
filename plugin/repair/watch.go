package repair

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
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

// filesystem is a watched filesystem.
type filesystem struct {
	dev        blkio.Dev // number in the kernel (super_block.s_dev)
	fstype     string
	mountpoint string      // path on the node
	disks      []blkio.Dev // its disks, and those below them
}

// Storage finds the filesystems of the node. It is a *storage.Storage, which documents the methods.
type Storage interface {
	Refresh(ctx context.Context) error
	Mounts() *storage.MountTable
	Resolve(ctx context.Context, hostPath string) *blkio.Backing
	Under(ctx context.Context, disk blkio.Dev) []blkio.Disk
}

// onLimited returns the filesystems on disks with a limit on writes: all that containers
// can write to, including those that are mounted later. A limit holds for the whole disk,
// so also for a logical volume on it.
func onLimited(ctx context.Context, s Storage, limited map[blkio.Dev]bool) (map[blkio.Dev]*filesystem, error) {
	out := map[blkio.Dev]*filesystem{}
	if len(limited) == 0 {
		return out, nil
	}
	if err := s.Refresh(ctx); err != nil {
		return nil, err
	}
	seen, under := map[blkio.Dev]bool{}, map[blkio.Dev][]blkio.Disk{}
	for _, m := range s.Mounts().All() {
		if !movable(m.FSType) || seen[m.Dev] && m.Root != "/" {
			continue
		}
		b := s.Resolve(ctx, m.Mountpoint)
		if b.Mountpoint != m.Mountpoint || b.FSType != m.FSType {
			continue // another one is mounted over it
		}
		seen[m.Dev] = true
		if b.Warning != nil && b.Warning.Kind == blkio.NoCgroupWriteback {
			continue
		}
		fs := &filesystem{dev: m.Dev, fstype: m.FSType, mountpoint: m.Mountpoint}
		for _, disk := range b.Disks {
			if _, known := under[disk.Dev]; !known {
				under[disk.Dev] = s.Under(ctx, disk.Dev)
			}
			for _, d := range append([]blkio.Disk{disk}, under[disk.Dev]...) {
				fs.disks = append(fs.disks, d.Dev)
			}
		}
		if slices.ContainsFunc(fs.disks, func(d blkio.Dev) bool { return limited[d] }) {
			out[m.Dev] = fs
		}
	}
	return out, ctx.Err()
}

// movable reports whether files of a filesystem type belong to cgroups, and
// writeback.Mount can open them by their inode numbers.
//
// Source: the users of SB_I_CGROUPWB in fs/.
func movable(fstype string) bool {
	switch fstype {
	case "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs":
		return true
	}
	return false
}

// hostPath returns the path by which this process reaches a path of the host.
func hostPath(hostRoot, p string) string { return filepath.Join(cmp.Or(hostRoot, "/"), p) }

// read adds the writes since the last call to the ledger, and returns their number.
func (r *Repairer) read(now time.Time) int {
	if len(r.watch.filesystems) == 0 {
		return 0
	}
	// The alarm rings once for each cgroup until it is set again: some cgroups write to
	// files of others all the time.
	err := r.watch.observer.SetAlarm()
	r.problems.complain("alarm", "Alarms of written files are unavailable: files move later", err)
	r.pace.hasAlarm = err == nil
	found, lost, err := r.watch.observer.Read()
	r.problems.complain("read", "Observing writes failed", err)
	if before := r.metrics.lost.Swap(lost + r.ledger.full); lost+r.ledger.full > before {
		r.problems.complain("lost", "Too many written files: some are not counted", errTooMany)
	}
	r.domains.forgetPlaces()
	for i := range found {
		if s, ok := r.sampleOf(&found[i]); ok {
			r.ledger.add(now, &s)
			r.count(&s)
			r.passes.notify(s.inode)
		}
	}
	return len(found)
}

// onAlarm starts a pass for a file as soon as a cgroup that does not own it writes to it. A writer that syncs
// has dirty pages, which are votes, for a moment only. read counts the bytes later, except those of a new
// writer. onAlarm returns the time until the next read.
func (r *Repairer) onAlarm(now time.Time, d *writeback.Dirtied) time.Duration {
	if r.passes.notify(d.Inode) {
		return tick
	}
	r.domains.forgetPlaces()
	s, ok := r.sampleOf(d)
	if !ok {
		return writesTick
	}
	s.coming = minBytes
	if f := r.ledger.files[s.inode]; f == nil || !slices.ContainsFunc(f.shares, func(of share) bool { return of.domain == s.writer.domain }) {
		s.bytes = minBytes
	}
	r.ledger.add(now, &s)
	f := r.ledger.files[s.inode]
	if f == nil {
		return writesTick // no limit is concerned
	}
	r.act(now, r.ledger.decideOn(now, f))
	return tick
}

var errTooMany = errors.New("some written files were not counted, see the metric nri_blkio_writeback_lost_bytes_total")

func (r *Repairer) sampleOf(d *writeback.Dirtied) (sample, bool) {
	fs := r.watch.filesystems[d.Dev]
	if fs == nil || d.Root == writeback.BtrfsRootTree {
		return sample{}, false
	}
	writer, owner, charged := d.Writer, d.Owner, d.Charged
	if charged == 0 {
		charged = writer // unknown
	}
	if owner == 0 {
		owner = charged // the kernel is about to move the file there
	}
	// A kernel thread writes for the cgroup that it charges (loop devices). The writes of a
	// removed cgroup are usually charged to a living one.
	if writer == writeback.RootCgroup || r.domains.find(writer).gone && !r.domains.find(charged).gone {
		writer = charged
	}
	// A pod is charged for the pages that its removed containers have left in the page cache (Linux 7.1). The
	// writer is unknown then, because no process runs in a pod's own cgroup.
	if cgroupfs.HoldsPods(r.domains.find(writer).path) {
		return sample{}, false
	}
	for _, id := range []uint64{writer, owner, charged} {
		if r.domains.find(id).unknown {
			r.problems.complain("cgroup", "Some cgroup IDs are unknown", errUnknownCgroup)
			return sample{}, false
		}
	}
	return sample{
		inode: d.Inode, fs: fs, account: r.domains.account(writer), bytes: d.Bytes, span: span{d.First, d.Last},
		writer:  member{r.domains.of(writer, fs), writer},
		owner:   member{r.domains.of(owner, fs), owner},
		charged: r.domains.of(charged, fs),
	}, true
}

var errUnknownCgroup = errors.New("files that they write keep their owner")

func (r *Repairer) count(s *sample) {
	if !r.ledger.concerns(s.writer.domain, s.owner.domain) {
		return
	}
	if s.writer.domain == s.owner.domain {
		r.metrics.right.Add(s.bytes)
	} else {
		r.metrics.wrong.Add(s.bytes)
	}
}
