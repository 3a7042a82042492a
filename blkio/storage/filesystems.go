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
	m, _ := s.Mounts().find(mountpoint)
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
	m, remote := snap.table.find(l.path)
	return l.path, m != nil && isLocal(m) && remote == nil
}

// Node returns the number of the block device at a path below /dev. The error is
// ErrNoDevice if there is none.
func (s *Storage) Node(name string) (blkio.Dev, error) { return s.current.Load().node(name) }

// noDiskReason returns why I/O on a filesystem of the type cannot be limited. It returns "" if the filesystem
// has a disk or, as an overlay, is made of others.
func noDiskReason(fstype string) string {
	switch fstype {
	case "tmpfs", "ramfs", "hugetlbfs", "devtmpfs":
		return fstype + " is memory, not a disk"
	case "nfs", "nfs4", "cifs", "smb3", "ceph", "afs", "lustre", "beegfs", "gpfs", "wekafs", "glusterfs", "orangefs":
		return fstype + " is a network filesystem: there is no local disk to limit"
	case "9p", "virtiofs", "vboxsf", "prl_fs", "vmhgfs":
		return fstype + " is served by the host of this virtual machine: there is no local disk to limit"
	case "aufs":
		return fstype + " is layered over other filesystems and has no disk of its own"
	case "fuseblk":
		return "fuseblk is served by a process, and its I/O counts as that process's"
	case "zfs":
		return "zfs writes to the disks of its pool with its own threads, whose I/O belongs to no container"
	case "autofs":
		return "autofs is a mount point on which nothing is mounted yet"
	case "proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "debugfs", "tracefs", "securityfs", "selinuxfs",
		"pstore", "bpf", "configfs", "efivarfs", "binfmt_misc", "nsfs", "rpc_pipefs", "fusectl", "resctrl", "nfsd":
		return fstype + " is a view of the kernel, not a disk"
	}
	if fstype == "fuse" || strings.HasPrefix(fstype, "fuse.") {
		return fstype + " is served by a process, and its I/O counts as that process's"
	}
	return ""
}

// isLocal reports whether a lookup in a filesystem waits for no network and no other
// process. An unknown filesystem is not local.
func isLocal(m *Mount) bool {
	if m.Unreadable != "" {
		return false
	}
	switch m.FSType {
	case "tmpfs", "ramfs", "devtmpfs", "overlay", "btrfs", "bcachefs", "zfs":
		return true
	}
	// Other filesystems are local if they are on a block device.
	return m.Dev.Major != 0 && noDiskReason(m.FSType) == ""
}

// writebackWarning returns a warning that names the I/O that a limit does not cover, or nil.
//
// Source: the filesystems that set SB_I_CGROUPWB.
func writebackWarning(m *Mount) *blkio.Warning {
	switch m.FSType {
	case "ext2", "ext3", "ext4":
		if m.DataJournal {
			return &blkio.Warning{Kind: blkio.NoCgroupWriteback, Text: m.FSType + " with data=journal" + noWriteback}
		}
		if m.SlowFsync {
			return &blkio.Warning{Kind: blkio.StallsFsync, Text: m.FSType + " is mounted nodelalloc or dioread_lock: an fsync of others waits behind a writer at its limit"}
		}
		return nil
	case "xfs", "btrfs", "f2fs":
		return nil
	case "squashfs", "erofs", "iso9660", "cramfs", "romfs":
		return nil // nothing is written
	case "overlay":
		return nil // that of its layers counts
	}
	return &blkio.Warning{Kind: blkio.NoCgroupWriteback, Text: m.FSType + noWriteback}
}

const noWriteback = " has no cgroup writeback: limits on writes hold for direct I/O only"
