package storage

import (
	"context"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Filesystem is a filesystem on block devices that is mounted at least once.
type Filesystem struct {
	Dev     blkio.Dev // st_dev of its files, the same in all its mounts
	Type    string
	Devices []blkio.Disk   // the block devices that it is on, which may be partitions, sorted by number
	Mounts  []*Mount       // in the order of the table, hidden ones included
	Warning *blkio.Warning // the I/O that a limit does not cover; nil if it covers all
	Err     error          // why Devices is incomplete
}

// Filesystems returns the filesystems that are on disks, by the mount table of the last
// refresh, in its order.
func (s *Storage) Filesystems() []Filesystem {
	snap := s.current.Load()
	at := map[blkio.Dev]int{}
	var out []Filesystem
	for i := range snap.table.mounts {
		m := snap.table.mounts[i]
		if m.Unreadable != "" || noDiskReason(m.FSType) != "" || m.FSType == "overlay" || m.Dev.Major == 0 && !strings.HasPrefix(m.Source, "/dev/") {
			continue
		}
		n, known := at[m.Dev]
		if !known {
			n = len(out)
			at[m.Dev] = n
			f := Filesystem{Dev: m.Dev, Type: m.FSType, Warning: writebackWarning(m)}
			f.Devices, f.Err = snap.devicesOf(keyOf(m))
			out = append(out, f)
		}
		out[n].Mounts = append(out[n].Mounts, m)
	}
	return out
}

// FilesystemAt returns the device number (st_dev) of the filesystem that is mounted at a path of the node, as
// of the last refresh. It returns zero if no filesystem is mounted at the path.
func (s *Storage) FilesystemAt(mountpoint string) blkio.Dev {
	m := s.Mounts().find(mountpoint)
	if m == nil || m.Mountpoint != mountpoint {
		return blkio.Dev{}
	}
	return m.Dev
}

// MountedDisks returns the whole disks of all mounted filesystems, as of the last refresh.
// It leaves out disks that cannot be found.
func (s *Storage) MountedDisks() map[blkio.Dev]bool {
	out := make(map[blkio.Dev]bool)
	sys := &s.current.Load().sys
	for _, f := range s.Filesystems() {
		for _, d := range f.Devices {
			if whole, err := sys.WholeDisk(d.Dev); err == nil {
				out[whole.Dev] = true
			}
		}
	}
	return out
}

// Locate returns a path of the node with its symlinks resolved, or "" if it cannot be
// resolved. local reports whether a lookup of names below it waits neither for a network
// nor for another process.
func (s *Storage) Locate(ctx context.Context, hostPath string) (p string, local bool) {
	snap := s.current.Load()
	l := snap.locate(ctx, hostPath)
	if l.path == "" {
		return "", false
	}
	m := snap.table.find(l.path)
	return l.path, m != nil && isLocal(m) && snap.remoteAbove(m) == nil
}

// Node returns the number of the block device at a path below /dev. The error is
// ErrNoDevice if there is none.
func (s *Storage) Node(name string) (blkio.Dev, error) { return s.current.Load().node(name) }
