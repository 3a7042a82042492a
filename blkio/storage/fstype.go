package storage

import (
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
)

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
