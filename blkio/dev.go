package blkio

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Dev is a block device number.
type Dev struct {
	Major, Minor uint32
}

// DevOf decodes the st_rdev or st_dev of a stat call:
//
//	bits 0-7 and 20-43   minor
//	bits 8-19 and 44-63  major
//
// Source: gnu_dev_major and gnu_dev_minor in sys/sysmacros.h of glibc.
func DevOf(number uint64) Dev {
	return Dev{
		Major: uint32(number>>8)&0xfff | uint32(number>>32)&^uint32(0xfff),
		Minor: uint32(number)&0xff | uint32(number>>12)&^uint32(0xff),
	}
}

// ParseDev parses "MAJ:MIN", the form of sysfs, mountinfo and the io files.
func ParseDev(s string) (Dev, error) {
	major, minor, ok := strings.Cut(s, ":")
	if !ok {
		return Dev{}, fmt.Errorf("parse device number %q: not MAJ:MIN", s)
	}
	ma, err := strconv.ParseUint(major, 10, 32)
	if err != nil {
		return Dev{}, fmt.Errorf("parse device number %q: %w", s, err)
	}
	mi, err := strconv.ParseUint(minor, 10, 32)
	if err != nil {
		return Dev{}, fmt.Errorf("parse device number %q: %w", s, err)
	}
	return Dev{Major: uint32(ma), Minor: uint32(mi)}, nil
}

// String is the inverse of ParseDev.
func (d Dev) String() string {
	return strconv.FormatUint(uint64(d.Major), 10) + ":" + strconv.FormatUint(uint64(d.Minor), 10)
}

// Compare orders devices by major, then minor number.
func (d Dev) Compare(o Dev) int {
	return cmp.Or(cmp.Compare(d.Major, o.Major), cmp.Compare(d.Minor, o.Minor))
}

// Disk is a whole block device that can carry limits.
type Disk struct {
	Dev  Dev
	Name string // kernel name, "sda", "dm-0", "nvme0n1"
}

// String returns "disk NAME MAJ:MIN", or only the name of a placeholder, see [UnknownDisk].
func (d Disk) String() string {
	if d.Dev.IsUnknown() {
		return d.Name
	}
	return "disk " + d.Name + " " + d.Dev.String()
}

// UnknownDisk returns a placeholder for a disk that is not known yet, with a name for
// people. It equals no disk of a node, and no placeholder with another number.
func UnknownDisk(number uint32, name string) Disk {
	return Disk{Dev: Dev{Major: unknownMajor, Minor: number}, Name: name}
}

// IsUnknown reports whether d is the number of an UnknownDisk.
func (d Dev) IsUnknown() bool { return d.Major == unknownMajor }

// unknownMajor is a number that no device can have: the kernel's major numbers have 12 bits.
const unknownMajor = 1 << 31

// DiskNames returns the names of disks.
func DiskNames(disks []Disk) []string {
	var out []string
	for _, d := range disks {
		out = append(out, d.Name)
	}
	return out
}

// Backing describes the filesystem and the disks that a path is stored on. Exactly one
// of Disks and Reason is set.
type Backing struct {
	Mountpoint string   // host path of the mount that holds the path
	FSType     string   // as in mountinfo, "ext4"; "" for a device without a mount
	Disks      []Disk   // sorted by number, without duplicates
	Reason     string   // why I/O on it cannot be limited, "tmpfs is memory, not a disk"
	Warning    *Warning // the I/O that a limit does not cover; nil if it covers all
	// Err is not nil if finding the disks failed, for example with an I/O error. A later try may succeed.
	// Reason is then set as well. Err is written to logs. Reason is shown to tenants, and contains nothing
	// about the host.
	Err error
	// Unresolved is true if the disks were not searched for, because no target of the
	// request can select the path. Reason is then set as well.
	Unresolved bool
	// Missing is true if sysfs lists no such device. The device may return. Reason is then
	// set as well.
	Missing bool
}

// ProcessMount is one mount in the mount namespace of a process.
type ProcessMount struct {
	Mountpoint string // as the process sees it; see storage.Mount.Unreadable for one that is too long
	ReadOnly   bool
	IsRoot     bool     // it is the root directory of the process
	Upper      string   // of a root that is an overlay: its upper layer, a path of the node
	Backing    *Backing // shared by the mounts of one filesystem; must not be changed
}

// Warning names the I/O that a limit on a filesystem does not cover.
type Warning struct {
	Kind WarningKind
	Text string // for people, "vfat has no cgroup writeback: ..."
}

// WarningKind identifies a warning in metrics. The kinds are few and fixed, and contain no
// text of tenants. A warning with the kind "" is not counted.
type WarningKind string

// The warnings about filesystems.
const (
	NoCgroupWriteback WarningKind = "no_cgroup_writeback" // buffered writes escape
	StallsFsync       WarningKind = "stalls_fsync"        // others wait for a writer at its limit
)
