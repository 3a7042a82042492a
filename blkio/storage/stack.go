package storage

import (
	"fmt"
	"path"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
)

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

// device returns the disk or partition with the number.
func (s Sysfs) device(dev blkio.Dev) (blkio.Disk, error) {
	dir, err := s.directory(dev)
	if err != nil {
		return blkio.Disk{}, err
	}
	return blkio.Disk{Dev: dev, Name: path.Base(dir)}, nil
}
