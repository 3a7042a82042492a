// Package storage finds the disks of the node that a path is stored on. It reads the mount
// table, and the stacks of block devices in sysfs.
package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unique"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Config names the files of the node.
type Config struct {
	Sys       fs.FS  // os.DirFS("/sys")
	Mountinfo string // of the node's first process, "/proc/1/mountinfo"; tests can use a regular file
	HostRoot  string // where the node's root filesystem is mounted, such as "/"
	Swaps     string // "/proc/swaps"; "" if SwapDisks is not needed
	Proc      string // "/proc", of the PID namespace of the runtime; "" if ProcessMounts is not needed
	UdevData  fs.FS  // os.DirFS("/run/udev/data"); nil if Links is not needed
}

// Storage finds the disks that paths of the node are stored on. It answers from a copy of
// the mount table, which Refresh and Watch keep up to date. It is safe for concurrent use.
type Storage struct {
	cfg     Config
	sys     Sysfs
	host    *hostRoot
	current atomic.Pointer[snapshot]
	reads   atomic.Uint64 // counts how often a changed table was read

	// refreshing is a lock that callers wait for until their context ends. It guards the
	// fields below. It is held while mountinfo is read, since the callers that wait for
	// it need that table.
	refreshing chan struct{}
	source     *mountSource
	stale      bool // the table changed, and was not read since
	pinned     []string
}

// Open opens the files, and reads the mount table.
func Open(cfg Config) (*Storage, error) {
	s, err := OpenUnread(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.Refresh(context.Background()); err != nil {
		s.Close() // the error that counts is the one before
		return nil, err
	}
	return s, nil
}

// OpenUnread opens the files. The mount table is empty until it is read by Refresh or Watch, and the disks of no path can be
// found until then.
func OpenUnread(cfg Config) (*Storage, error) {
	host, err := openHostRoot(cfg.HostRoot)
	if err != nil {
		return nil, err
	}
	source, err := openMountSource(cfg.Mountinfo)
	if err != nil {
		host.Close() // the error that counts is the one before
		return nil, err
	}
	s := &Storage{
		cfg: cfg, sys: NewSysfs(cfg.Sys), host: host,
		refreshing: make(chan struct{}, 1), source: source, stale: true,
	}
	s.current.Store(newSnapshot(&MountTable{}, s.sys, s.host))
	return s, nil
}

// Close closes the files. It must not run concurrently with other calls.
func (s *Storage) Close() error { return errors.Join(s.source.Close(), s.host.Close()) }

// Mounts returns the mount table as of the last refresh.
func (s *Storage) Mounts() *MountTable { return s.current.Load().table }

// Resolve returns the disks that a path of the node is stored on, by the mount table of the
// last refresh. Without a disk, Reason of the result has the cause. Resolve follows
// symlinks on local filesystems only, and stops when ctx ends. The result is shared, and must not be changed.
func (s *Storage) Resolve(ctx context.Context, hostPath string) *blkio.Backing {
	return s.current.Load().locate(ctx, hostPath).backing
}

// Pin makes each refresh resolve a path, so that a later call of Resolve finds the result
// in the cache.
func (s *Storage) Pin(hostPath string) {
	s.refreshing <- struct{}{}
	defer func() { <-s.refreshing }()
	if !slices.Contains(s.pinned, hostPath) {
		s.pinned = append(s.pinned, hostPath)
	}
}

// Refresh reads the mount table if the kernel reports a change. Otherwise it costs one
// system call. After an error the old table stays in use, and the next call reads it again.
func (s *Storage) Refresh(ctx context.Context) error {
	_, err := s.refresh(ctx, false)
	return err
}

// DisksChanged drops all cached results, and reads the mount table again. Call it after
// block devices were added, removed or replaced, which does not change the mount table.
func (s *Storage) DisksChanged(ctx context.Context) error {
	_, err := s.refresh(ctx, true)
	return err
}

// refresh returns how long reading took, 0 if there was nothing to read.
func (s *Storage) refresh(ctx context.Context, anew bool) (time.Duration, error) {
	select {
	case s.refreshing <- struct{}{}:
		defer func() { <-s.refreshing }()
	case <-ctx.Done():
		return 0, fmt.Errorf("refresh the mount table: %w", ctx.Err())
	}
	s.stale = s.stale || anew
	changed, err := s.source.changed()
	if err != nil {
		return 0, fmt.Errorf("refresh the mount table: %w", err)
	}
	if !s.stale && !changed {
		return 0, nil
	}
	isStale := s.stale
	s.stale = true // until it is read
	start := time.Now()
	c, err := s.source.read()
	if err != nil {
		return 0, fmt.Errorf("refresh the mount table: %w", err)
	}
	if len(c.table.All()) == 0 {
		return 0, errors.New("refresh the mount table: it is empty")
	}
	if isStale {
		c.mounts = nil
	}
	next := newSnapshot(c.table, s.sys, s.host)
	next.carryOver(ctx, s.current.Load(), &c)
	for _, p := range s.pinned {
		next.locate(ctx, p)
	}
	s.current.Store(next)
	s.reads.Add(1)
	s.stale = false
	return time.Since(start), nil
}

// Watch refreshes the table whenever the kernel reports a change, and then calls changed. So Refresh usually
// has nothing to do. Watch returns when ctx ends, or with an error if it cannot continue. Refresh works after
// that as well.
func (s *Storage) Watch(ctx context.Context, changed func()) error {
	reads := s.reads.Load()
	return waitChanges(ctx, s.cfg.Mountinfo, func() error {
		took, err := s.refresh(ctx, false)
		if err != nil {
			return err
		}
		// A caller of Refresh may have read the table first.
		if now := s.reads.Load(); now != reads {
			reads = now
			changed()
		}
		// Reading takes at most a tenth of the time in a burst of changes.
		// A caller that needs the table sooner calls Refresh.
		if took > 0 {
			select {
			case <-time.After(min(9*took, time.Second)):
			case <-ctx.Done():
			}
		}
		return nil
	})
}

// mountBacking is the backing of a mount, with what it depends on beside the mount and its disks.
type mountBacking struct {
	*blkio.Backing
	layers layerPlaces // of an overlay
}

// layerPlaces are the directories in which the layers of an overlay are. Most overlays of a node have the same ones. The zero
// value has none.
type layerPlaces struct{ dirs unique.Handle[string] }

// placeSeparator is in no path.
const placeSeparator = "\x00"

func newLayerPlaces(dirs []string) layerPlaces {
	slices.Sort(dirs)
	return layerPlaces{unique.Make(strings.Join(slices.Compact(dirs), placeSeparator))}
}

// isTouched reports whether a mount on one of the mountpoints can be on the way to a layer, or to another one beside it.
func (l layerPlaces) isTouched(mountpoints map[string]bool) bool {
	if l == (layerPlaces{}) {
		return false
	}
	for dir := range strings.SplitSeq(l.dirs.Value(), placeSeparator) {
		for p := range mountpoints {
			if p == dir || isBelow(p, strings.TrimSuffix(dir, "/")) || isBelow(dir, strings.TrimSuffix(p, "/")) {
				return true
			}
		}
	}
	return false
}

// carryOver takes what an older snapshot had found and what is still right, so that the next handler does not wait for
// sysfs. It resolves the devices again.
func (s *snapshot) carryOver(ctx context.Context, old *snapshot, c *mountChange) {
	moved := map[blkio.Dev]bool{} // the former disks of filesystems that have others now
	for key, disks := range old.devices.copy() {
		if ctx.Err() != nil {
			return
		}
		now, _ := s.readDisks(key) // none after an error: it is made again when a path is resolved
		if len(now) > 0 {
			s.devices.put(key, now, maxPaths)
		}
		if !slices.Equal(now, disks) {
			for _, d := range disks {
				moved[d.Dev] = true
			}
		}
	}
	if c.mounts != nil {
		s.carryMounts(old, c.mounts, moved)
	}
}

// carryMounts keeps the backings of mounts that have not changed. A node has thousands, and each container that follows its
// mounts needs all of them after each change.
func (s *snapshot) carryMounts(old *snapshot, changed []*Mount, moved map[blkio.Dev]bool) {
	gone, mountpoints := make(map[*Mount]bool, len(changed)), make(map[string]bool, len(changed))
	for _, m := range changed {
		gone[m], mountpoints[m.Mountpoint] = true, true
	}
	touched := map[layerPlaces]bool{}
	isTouched := func(l layerPlaces) bool {
		t, known := touched[l]
		if !known {
			t = l.isTouched(mountpoints)
			touched[l] = t
		}
		return t
	}
	hasMoved := func(d blkio.Disk) bool { return moved[d.Dev] }
	for m, known := range old.mounts.copy() {
		if !gone[m] && !isTouched(known.layers) && !slices.ContainsFunc(known.Disks, hasMoved) {
			s.mounts.put(m, known, len(s.table.mounts))
		}
	}
}
