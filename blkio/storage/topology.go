package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Sysfs reads block devices from sysfs.
//
// Source: Documentation/ABI/stable/sysfs-block.
type Sysfs struct {
	fsys fs.FS
}

// NewSysfs returns a Sysfs that reads fsys, such as os.DirFS("/sys"). fsys must support
// symlinks.
func NewSysfs(fsys fs.FS) Sysfs { return Sysfs{fsys: fsys} }

// WholeDisk returns the disk with the number. For the number of a partition it returns the
// disk of the partition. The error is ErrNoDevice if there is no such block device.
func (s Sysfs) WholeDisk(dev blkio.Dev) (blkio.Disk, error) {
	dir, err := s.directory(dev)
	if err != nil {
		return blkio.Disk{}, err
	}
	if !s.isPartition(dir) {
		return blkio.Disk{Dev: dev, Name: path.Base(dir)}, nil
	}
	disk, err := s.disk(path.Dir(dir))
	if err != nil {
		return blkio.Disk{}, fmt.Errorf("disk of partition %s: %w", dev, err)
	}
	return disk, nil
}

// directory returns where sysfs describes a disk or partition.
//
//	/sys/dev/block/8:17 -> ../../devices/pci0000:00/.../block/sdb/sdb1
func (s Sysfs) directory(dev blkio.Dev) (string, error) {
	target, err := fs.ReadLink(s.fsys, "dev/block/"+dev.String())
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("block device %s: %w", dev, blkio.ErrNoDevice)
	}
	if err != nil {
		return "", fmt.Errorf("block device %s: %w", dev, err)
	}
	return path.Join("dev/block", target), nil
}

// disk reads the number of the block device whose directory it is given.
func (s Sysfs) disk(dir string) (blkio.Disk, error) {
	number, err := fs.ReadFile(s.fsys, dir+"/dev")
	if errors.Is(err, fs.ErrNotExist) {
		return blkio.Disk{}, fmt.Errorf("%s: %w", path.Base(dir), blkio.ErrNoDevice)
	}
	if err != nil {
		return blkio.Disk{}, err
	}
	dev, err := blkio.ParseDev(strings.TrimSpace(string(number)))
	if err != nil {
		return blkio.Disk{}, fmt.Errorf("read %s/dev: %w", dir, err)
	}
	return blkio.Disk{Dev: dev, Name: path.Base(dir)}, nil
}

func (s Sysfs) isPartition(dir string) bool {
	if path.Base(path.Dir(dir)) == "block" {
		return false // a disk, save for NVMe's: spare a system call
	}
	_, err := fs.Stat(s.fsys, dir+"/partition")
	return err == nil
}

// number returns the number of the disk or partition that a path below /dev
// names, "/dev/sdb1" or "/dev/mapper/vg-lv". Symlinks that udev makes are
// unknown to sysfs: ErrNoDevice.
func (s Sysfs) number(node string) (blkio.Dev, error) {
	name := strings.TrimPrefix(node, "/dev/")
	if mapped, ok := strings.CutPrefix(name, "mapper/"); ok {
		return s.mapped(mapped)
	}
	// sysfs has "cciss!c0d0" for /dev/cciss/c0d0.
	link := "class/block/" + strings.ReplaceAll(name, "/", "!")
	if !fs.ValidPath(link) || name == "" {
		return blkio.Dev{}, fmt.Errorf("block device %q: %w", node, blkio.ErrNoDevice)
	}
	d, err := s.disk(link)
	if err != nil {
		return blkio.Dev{}, fmt.Errorf("block device %q: %w", node, err)
	}
	return d.Dev, nil
}

func (s Sysfs) mapped(name string) (blkio.Dev, error) {
	dirs, err := fs.Glob(s.fsys, "block/dm-*")
	if err != nil {
		return blkio.Dev{}, err
	}
	for _, dir := range dirs {
		if s.text(dir+"/dm/name") == name {
			d, err := s.disk(dir)
			return d.Dev, err
		}
	}
	return blkio.Dev{}, fmt.Errorf("device mapper %q: %w", name, blkio.ErrNoDevice)
}

// Physical returns the physical disks of a stack of dm and md devices, sorted by number.
// The physical disk of a physical disk is the disk itself. Weights go to physical disks.
func (s Sysfs) Physical(dev blkio.Dev) ([]blkio.Disk, error) {
	found := make(map[blkio.Dev]blkio.Disk)
	if err := s.physical(dev, found, 0); err != nil {
		return nil, err
	}
	return sortedDisks(found), nil
}

// maxStack is far more than the kernel's own limit on stacked devices.
const maxStack = 32

func (s Sysfs) physical(dev blkio.Dev, found map[blkio.Dev]blkio.Disk, depth int) error {
	disk, err := s.WholeDisk(dev)
	if err != nil {
		return err
	}
	below, err := s.slaves("block/" + disk.Name)
	if err != nil {
		return err
	}
	if len(below) == 0 {
		found[disk.Dev] = disk
		return nil
	}
	if depth == maxStack {
		return fmt.Errorf("disks below %s: more than %d layers", disk.Name, maxStack)
	}
	for _, b := range below {
		if err := s.physical(b.Dev, found, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// slaves returns the disks directly below the disk with the directory, sorted by number.
func (s Sysfs) slaves(dir string) ([]blkio.Disk, error) {
	devices, err := s.links(dir + "/slaves")
	if err != nil || len(devices) == 0 {
		return nil, err
	}
	return s.wholeDisks(devices)
}

func (s Sysfs) wholeDisks(devices []blkio.Disk) ([]blkio.Disk, error) {
	found := make(map[blkio.Dev]blkio.Disk)
	for _, d := range devices {
		d, err := s.WholeDisk(d.Dev)
		if err != nil {
			return nil, err
		}
		found[d.Dev] = d
	}
	return sortedDisks(found), nil
}

// links returns the block devices that a directory of links names, partitions as they are, sorted by number.
// Without the directory there are none.
func (s Sysfs) links(dir string) ([]blkio.Disk, error) {
	entries, err := fs.ReadDir(s.fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	found := make(map[blkio.Dev]blkio.Disk)
	for _, e := range entries {
		d, err := s.disk(dir + "/" + e.Name())
		if errors.Is(err, blkio.ErrNoDevice) {
			continue // the hidden path of a multipath disk
		}
		if err != nil {
			return nil, err
		}
		found[d.Dev] = d
	}
	return sortedDisks(found), nil
}

// HasBtrfs reports whether a whole disk, or a partition of it, is a member of a btrfs. It is true if that cannot be read.
func (s Sysfs) HasBtrfs(disk blkio.Dev) bool {
	all, _ := fs.ReadDir(s.fsys, "fs/btrfs") // without btrfs there is none
	for _, uuid := range all {
		devices, err := s.links("fs/btrfs/" + uuid.Name() + "/devices")
		if err != nil {
			return true
		}
		members, err := s.wholeDisks(devices)
		if err != nil || slices.ContainsFunc(members, func(d blkio.Disk) bool { return d.Dev == disk }) {
			return true
		}
	}
	return false
}

// BtrfsMembers returns the members of the btrfs that has a device as a member, sorted by
// number. They may be partitions.
func (s Sysfs) BtrfsMembers(member blkio.Dev) ([]blkio.Disk, error) {
	dir, err := s.btrfsDevices(member)
	if err != nil {
		return nil, err
	}
	return s.links(dir)
}

// btrfsDevices finds the directory of links to a btrfs's members.
//
//	/sys/fs/btrfs/UUID/devices/sdb1 -> ../../../../devices/.../sdb/sdb1
func (s Sysfs) btrfsDevices(member blkio.Dev) (string, error) {
	dir, err := s.directory(member)
	if err != nil {
		return "", err
	}
	entry := path.Base(dir)
	all, err := fs.ReadDir(s.fsys, "fs/btrfs")
	if err != nil {
		return "", err
	}
	for _, uuid := range all {
		devices := "fs/btrfs/" + uuid.Name() + "/devices"
		if _, err := fs.Lstat(s.fsys, devices+"/"+entry); err == nil {
			return devices, nil
		}
	}
	return "", fmt.Errorf("no btrfs has %s as a member: %w", entry, blkio.ErrNoDevice)
}

// text returns the first line of an attribute, "" if there is none.
func (s Sysfs) text(name string) string {
	data, err := fs.ReadFile(s.fsys, name)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

func (s Sysfs) count(name string) uint64 {
	n, err := strconv.ParseUint(s.text(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func sortedDisks(m map[blkio.Dev]blkio.Disk) []blkio.Disk {
	disks := slices.AppendSeq(make([]blkio.Disk, 0, len(m)), maps.Values(m)) // not nil
	slices.SortFunc(disks, func(a, b blkio.Disk) int {
		return cmp.Or(a.Dev.Compare(b.Dev), cmp.Compare(a.Name, b.Name))
	})
	return disks
}

// DeviceKind is the kind of driver that provides a block device.
type DeviceKind string

// The kinds of block devices. The kind of an md device is the name of its level, "raid1", or KindMD.
const (
	KindDisk      DeviceKind = "disk" // any other device
	KindPartition DeviceKind = "partition"
	KindLVM       DeviceKind = "lvm"
	KindCrypt     DeviceKind = "crypt"
	KindMultipath DeviceKind = "multipath"
	KindDM        DeviceKind = "dm" // another target of the device mapper
	KindMD        DeviceKind = "md"
	KindLoop      DeviceKind = "loop"
)

// BlockDevice is one device of the node: a disk, or a partition.
type BlockDevice struct {
	DiskInfo // for a partition only Disk, Size and ReadOnly are set
	Kind     DeviceKind
	Parents  []blkio.Disk // the devices directly below, which may be partitions; for a partition its disk
}

// Stack returns the disks that Disks returns, each followed by its partitions.
func (s Sysfs) Stack() ([]BlockDevice, error) {
	disks, err := s.Disks()
	if err != nil {
		return nil, err
	}
	out := make([]BlockDevice, 0, len(disks))
	for _, d := range disks {
		dir := "block/" + d.Name
		parents, err := s.links(dir + "/slaves")
		if err != nil {
			return nil, fmt.Errorf("list disks: %w", err)
		}
		out = append(out, BlockDevice{DiskInfo: d, Kind: s.kind(dir), Parents: parents})
		for _, p := range d.Partitions {
			sub := dir + "/" + p.Name
			info := DiskInfo{Disk: p, Size: s.count(sub+"/size") * sectorSize, ReadOnly: s.text(sub+"/ro") == "1"}
			out = append(out, BlockDevice{DiskInfo: info, Kind: KindPartition, Parents: []blkio.Disk{d.Disk}})
		}
	}
	return out, nil
}

// kind returns the kind of a device, by properties that only such devices have. The device mapper's users begin
// its UUIDs with their name: "LVM-", "CRYPT-LUKS2-", "mpath-".
//
// Source: Documentation/ABI/testing/sysfs-block-dm; DM_UUID_PREFIX of each.
func (s Sysfs) kind(dir string) DeviceKind {
	if level := s.text(dir + "/md/level"); level != "" {
		if strings.HasPrefix(level, "raid") {
			return DeviceKind(level)
		}
		return KindMD
	}
	if s.text(dir+"/dm/name") != "" {
		switch user, _, _ := strings.Cut(s.text(dir+"/dm/uuid"), "-"); user {
		case "LVM":
			return KindLVM
		case "CRYPT":
			return KindCrypt
		case "mpath":
			return KindMultipath
		}
		return KindDM
	}
	if s.text(dir+"/loop/backing_file") != "" {
		return KindLoop
	}
	return KindDisk
}

func (s Sysfs) device(dev blkio.Dev) (blkio.Disk, error) {
	dir, err := s.directory(dev)
	if err != nil {
		return blkio.Disk{}, err
	}
	return blkio.Disk{Dev: dev, Name: path.Base(dir)}, nil
}
