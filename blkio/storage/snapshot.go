package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// snapshot is a mount table with the results that were derived from it. A new table has a
// new snapshot, since a change of the table can make the results wrong.
type snapshot struct {
	table *MountTable
	sys   Sysfs
	host  *hostRoot

	paths   boundedMap[string, located]
	mounts  boundedMap[*Mount, mountBacking]
	devices boundedMap[deviceKey, []blkio.Disk]
	visible visibleMounts
}

// deviceKey is the device of a filesystem: its number, or, for those with an
// anonymous one (0:45), type and source.
type deviceKey struct {
	dev            blkio.Dev
	fstype, source string
	realtime       string // of XFS, a device beside dev
}

// maxPaths bounds the paths that are remembered, should a table last long.
const maxPaths = 8192

func newSnapshot(table *MountTable, sys Sysfs, host *hostRoot) *snapshot {
	return &snapshot{table: table, sys: sys, host: host}
}

// located is where a path of the host leads to.
type located struct {
	path    string         // free of symlinks; "" if it cannot be resolved
	backing *blkio.Backing // of the path
}

func (s *snapshot) locate(ctx context.Context, hostPath string) located {
	if l, ok := s.paths.get(hostPath); ok {
		return l
	}
	l, certain := s.locateNew(ctx, hostPath)
	if certain {
		s.paths.put(hostPath, l, maxPaths)
	}
	return l
}

// locateNew finds the backing of a path. certain is true if the result is valid as long as the table is.
func (s *snapshot) locateNew(ctx context.Context, hostPath string) (_ located, certain bool) {
	if !strings.HasPrefix(hostPath, "/") {
		return located{backing: &blkio.Backing{Reason: fmt.Sprintf("path %q is not absolute", hostPath)}}, false
	}
	p := path.Clean(hostPath)
	m, remote := s.table.find(p)
	if m == nil {
		return located{backing: s.uncovered()}, false
	}
	certain = true
	// A mountpoint has no symlinks, because the kernel prints it resolved. Names in a filesystem that is not
	// local are never looked up.
	if p != m.Mountpoint && isLocal(m) {
		if remote != nil {
			return s.noDisk(m, belowRemote(remote)), false
		}
		target, err := s.host.resolve(ctx, s.table, p)
		certain = err == nil
		if err != nil && !errors.Is(err, errUncertain) {
			return s.unknown(m, err), false
		}
		if target != p {
			p = target
			if m, _ = s.table.find(p); m == nil {
				return located{backing: s.uncovered()}, false
			}
		}
	}
	b, known := s.backing(ctx, m, p)
	return located{path: p, backing: b}, certain && known
}

// errUnread is the error of a search before the mount table was read.
var errUnread = errors.New("the mount table was not read yet")

// uncovered returns the backing of a path that is on no mount.
func (s *snapshot) uncovered() *blkio.Backing {
	if len(s.table.mounts) == 0 {
		return &blkio.Backing{Reason: resolveFailed, Err: errUnread}
	}
	return &blkio.Backing{Reason: "no mount covers this path"}
}

// unknown returns the result for a path whose symlinks could not be followed.
func (s *snapshot) unknown(m *Mount, err error) located {
	if errors.Is(err, unix.ELOOP) {
		return s.noDisk(m, "too many symbolic links in its path")
	}
	l := s.noDisk(m, resolveFailed)
	l.backing.Err = err
	return l
}

const resolveFailed = "this node failed to look where it is stored"

// setReason makes err the reason why b has no disks. A failure of the system is an error
// for the log, and a tenant reads only that there was one.
func setReason(b *blkio.Backing, err error) {
	b.Reason, b.Missing = err.Error(), errors.Is(err, blkio.ErrNoDevice)
	for _, failure := range []error{unix.EIO, unix.EMFILE, unix.ENFILE, unix.ENOMEM, fs.ErrPermission} {
		if errors.Is(err, failure) {
			b.Reason, b.Err = resolveFailed, err
		}
	}
}

func belowRemote(m *Mount) string {
	if m.Unreadable != "" {
		return "its mount cannot be read: " + m.Unreadable
	}
	return "its place is below " + m.FSType + ", which could hang"
}

func (s *snapshot) noDisk(m *Mount, reason string) located {
	return located{backing: &blkio.Backing{Mountpoint: m.Mountpoint, FSType: m.FSType, Reason: reason}}
}

// backing returns the backing of a path free of symlinks, which m holds, and
// false if it may be so for the moment only.
func (s *snapshot) backing(ctx context.Context, m *Mount, p string) (_ *blkio.Backing, certain bool) {
	if m.FSType == "devtmpfs" {
		// Nodes come and go without a change of the mount table.
		if b, ok := s.deviceNode(m, p); ok {
			return b, false
		}
	}
	return s.mountBacking(ctx, m, 0)
}

// mountBacking is backing for all paths in m except device nodes. depth is the number of
// overlays that m is a layer of.
func (s *snapshot) mountBacking(ctx context.Context, m *Mount, depth int) (_ *blkio.Backing, certain bool) {
	if known, ok := s.mounts.get(m); ok {
		return known.Backing, m.FSType != "devtmpfs"
	}
	b := &blkio.Backing{Mountpoint: m.Mountpoint, FSType: m.FSType, Reason: noDiskReason(m.FSType)}
	var at layerPlaces
	switch {
	case m.Unreadable != "":
		b.Reason = m.Unreadable
	case m.FSType == "overlay" || m.isFromFile():
		// Of a layer the text may be another than where it is asked for.
		if b, at, certain = s.overlayBacking(ctx, m, depth); !certain || depth > 0 {
			return b, certain
		}
	case b.Reason == "":
		disks, err := s.disksOf(m)
		if err != nil {
			setReason(b, err)
			return b, false
		}
		b.Disks, b.Warning = disks, writebackWarning(m)
	}
	s.mounts.put(m, mountBacking{b, at}, len(s.table.mounts)) // one for each
	return b, m.FSType != "devtmpfs"
}

// deviceNode returns the backing of a raw block volume: a device node is stored on its own
// disk.
func (s *snapshot) deviceNode(m *Mount, p string) (*blkio.Backing, bool) {
	dev, err := s.host.blockDevice(p)
	if err != nil {
		return nil, false
	}
	disk, err := s.sys.WholeDisk(dev)
	if err != nil {
		return nil, false
	}
	return &blkio.Backing{Mountpoint: m.Mountpoint, FSType: m.FSType, Disks: []blkio.Disk{disk}}, true
}

func keyOf(m *Mount) deviceKey {
	key := deviceKey{dev: m.Dev, realtime: m.realtime()}
	if m.Dev.Major == 0 {
		key.fstype, key.source = m.FSType, m.Source
	}
	return key
}

func (s *snapshot) disksOf(m *Mount) ([]blkio.Disk, error) {
	key := keyOf(m)
	if disks, ok := s.devices.get(key); ok {
		return disks, nil
	}
	disks, err := s.readDisks(key)
	if err != nil {
		return nil, err
	}
	s.devices.put(key, disks, maxPaths)
	return disks, nil
}

// realtime returns the path of the device that holds the file data of XFS with a realtime section, "" without one. The device of the
// mount has the metadata. Zoned XFS (Linux 6.15) keeps file data on the realtime device as well.
//
// Source: xfs_fs_show_options in fs/xfs/xfs_super.c.
func (m *Mount) realtime() string {
	if m.FSType != "xfs" {
		return ""
	}
	return unescapeOctal(strings.TrimPrefix(m.Options, "rtdev="))
}

// readDisks asks sysfs. The disks are at least one.
func (s *snapshot) readDisks(key deviceKey) ([]blkio.Disk, error) {
	devices, err := s.devicesOf(key)
	switch {
	case err != nil && key.dev.Major != 0 && len(devices) == 0:
		return nil, fmt.Errorf("the filesystem's device is not in sysfs: %w", err)
	case err != nil:
		return nil, err
	}
	return s.sys.wholeDisks(devices)
}

// devicesOf returns the block devices of a filesystem, which may be partitions, sorted by number. With an error, some may be missing.
func (s *snapshot) devicesOf(key deviceKey) ([]blkio.Disk, error) {
	if key.dev.Major != 0 {
		d, err := s.sys.device(key.dev)
		if err != nil {
			return nil, err
		}
		if key.realtime == "" {
			return []blkio.Disk{d}, nil
		}
		data, err := s.fromSource("xfs", key.realtime)
		if err != nil {
			return []blkio.Disk{d}, fmt.Errorf("the realtime device %s: %w", key.realtime, err)
		}
		return sortedDisks(map[blkio.Dev]blkio.Disk{d.Dev: d, data[0].Dev: data[0]}), nil
	}
	if !strings.HasPrefix(key.source, "/dev/") {
		return nil, fmt.Errorf("%s has no block device, only the device number %s", key.fstype, key.dev)
	}
	found := make(map[blkio.Dev]blkio.Disk)
	// bcachefs names all of its devices, with colons between.
	for source := range strings.SplitSeq(key.source, ":") {
		disks, err := s.fromSource(key.fstype, source)
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", key.fstype, source, err)
		}
		for _, d := range disks {
			found[d.Dev] = d
		}
	}
	return sortedDisks(found), nil
}

func (s *snapshot) fromSource(fstype, source string) ([]blkio.Disk, error) {
	dev, err := s.node(source)
	if err != nil {
		return nil, err
	}
	if fstype == "btrfs" {
		return s.sys.BtrfsMembers(dev)
	}
	d, err := s.sys.device(dev)
	return []blkio.Disk{d}, err
}

// node returns the number of the block device that a path below /dev names.
func (s *snapshot) node(name string) (blkio.Dev, error) {
	dev, err := s.sys.number(name)
	if errors.Is(err, blkio.ErrNoDevice) {
		// One of udev's links. The nodes are in devtmpfs: no hang.
		if d, statErr := s.host.blockDevice(path.Clean(name)); statErr == nil {
			return d, nil
		}
	}
	return dev, err
}

// boundedMap is a map with its lock. Its zero value is empty and ready to use.
type boundedMap[K comparable, V any] struct {
	mu  sync.RWMutex // guards all below
	all map[K]V
}

func (m *boundedMap[K, V]) get(key K) (V, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	v, ok := m.all[key]
	return v, ok
}

// put sets the value of a key, unless the map has most keys already.
func (m *boundedMap[K, V]) put(key K, v V, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[K]V{}
	}
	if len(m.all) < most {
		m.all[key] = v
	}
}

func (m *boundedMap[K, V]) copy() map[K]V {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return maps.Clone(m.all)
}
