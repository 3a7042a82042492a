package fakenode

import (
	"io/fs"
	"path"
	"strings"
	"testing/fstest"
)

// sysfs is sysfs as the kernel lays it out.
type sysfs struct{ fstest.MapFS }

// add makes a device below /sys/devices, with attributes "name=content".
func (f sysfs) add(dir, dev string, attrs ...string) {
	full := "devices/" + dir
	partition := false
	for _, attr := range append(attrs, "dev="+dev) {
		key, value, _ := strings.Cut(attr, "=")
		partition = partition || key == "partition"
		if key != "dev" || dev != "" {
			f.MapFS[full+"/"+key] = &fstest.MapFile{Data: []byte(value + "\n")}
		}
	}
	if dev != "" {
		f.link("dev/block/"+dev, "../../"+full)
	}
	f.link("class/block/"+path.Base(dir), "../../"+full)
	if !partition {
		f.link("block/"+path.Base(dir), "../"+full)
	}
}

// on adds the devices that a device is made of.
func (f sysfs) on(dir string, below ...string) {
	for _, b := range below {
		up := strings.Repeat("../", strings.Count(dir, "/")+2)
		f.link("devices/"+dir+"/slaves/"+path.Base(b), up+b)
	}
}

func (f sysfs) link(name, target string) {
	f.MapFS[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
}

const twoGiB = "size=4194304"

// Sysfs returns the sysfs of a node with one device of each kind. These are a partition, LVM over two disks
// with dm-crypt on it, RAID1 with a partition, multipath, and NVMe with a hidden path. It also has devices that
// storage.Sysfs.Disks leaves out.
func Sysfs() fs.FS {
	f := sysfs{fstest.MapFS{}}
	f.add("pci/sda", "8:0", twoGiB, "device/model=Disk \x1b[31m", "queue/rotational=1", "queue/scheduler=[mq-deadline] none")
	f.add("pci/sda/sda1", "8:1", "size=1048576", "partition=1")
	f.add("pci/sda/sda2", "8:2", "size=2097152", "partition=2")
	f.add("pci/sdb", "8:16", twoGiB, "device/model=SSD")
	f.add("pci/sdc", "8:32", twoGiB, "ro=1")
	f.add("pci/sdd", "8:48", twoGiB)
	f.add("pci/sde", "65:256", twoGiB) // a minor above 255
	f.add("virtual/dm-0", "253:0", twoGiB, "dm/name=vg-data", "dm/uuid=LVM-abc")
	f.on("virtual/dm-0", "pci/sda/sda2", "pci/sdb")
	f.add("virtual/dm-1", "253:1", twoGiB, "dm/name=luks", "dm/uuid=CRYPT-LUKS2-abc-luks")
	f.on("virtual/dm-1", "virtual/dm-0")
	f.add("virtual/md0", "9:0", twoGiB, "md/level=raid1")
	f.on("virtual/md0", "pci/sdc", "pci/sdd")
	f.add("virtual/md0/md0p1", "259:9", "size=2048", "partition=1")
	f.add("pci/sdf", "8:80", twoGiB)
	f.add("pci/sdg", "8:96", twoGiB)
	f.add("virtual/dm-2", "253:2", twoGiB, "dm/name=mpatha", "dm/uuid=mpath-3600")
	f.on("virtual/dm-2", "pci/sdf", "pci/sdg")
	f.add("virtual/nvme0n1", "259:300", twoGiB, "hidden=0", "device/model=NVMe")
	f.add("pci/nvme0c0n1", "", twoGiB, "hidden=1")
	f.add("virtual/loop0", "7:0", "size=2048", "loop/backing_file=/srv/a\x07b.img")
	f.add("virtual/loop1", "7:1", "size=0")
	f.add("virtual/nbd0", "43:0", "size=0")
	f.add("virtual/ram0", "1:0", "size=8192")
	f.add("virtual/zram0", "252:0", "size=8192")
	f.add("virtual/zram1", "252:1", "size=0")
	const members = "fs/btrfs/5b1b/devices/"
	f.link(members+"sde", "../../../../devices/pci/sde")
	f.link(members+"sda1", "../../../../devices/pci/sda/sda1")
	return f
}

// Mounts is the mountinfo of a node with the devices of Sysfs. It has volumes of the pod
// u1.
const Mounts = `1 0 259:300 / / rw - ext4 /dev/nvme0n1 rw
2 1 0:5 / /dev rw - devtmpfs udev rw
3 1 253:1 / /mnt/secret rw - xfs /dev/mapper/luks rw
4 1 0:45 /sub /srv/sub rw - btrfs /dev/sde rw
5 1 0:45 / /srv/btrfs rw - btrfs /dev/sda1 rw
6 1 259:9 / /boot rw - vfat /dev/md0p1 rw
7 1 0:60 / /var/lib/kubelet/pods/u1/volumes/kubernetes.io~nfs/share rw - nfs4 filer:/ rw
8 1 0:61 / /var/lib/kubelet/pods/u1/volumes/kubernetes.io~projected/token rw - tmpfs tmpfs rw
9 1 253:2 / /var/lib/kubelet/plugins/kubernetes.io/csi/x/0123456789012345678901234567890123456789/globalmount rw - ext4 /dev/mapper/mpatha rw,data=journal
10 1 253:2 / /var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pvc-1/mount rw - ext4 /dev/mapper/mpatha rw,data=journal
11 1 8:200 / /mnt/gone rw - ext4 /dev/sdz rw
`
