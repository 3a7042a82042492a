// Package fakenode provides the files of a fictitious node for tests: sysfs, mounts, the
// directories and cgroups of pods, and processes.
package fakenode

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// WriteFiles writes files below a directory.
func WriteFiles(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, data := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// OpenCgroups opens a directory as a cgroup v2 tree.
func OpenCgroups(t testing.TB, dir string) *cgroupfs.Hierarchy {
	t.Helper()
	tree, err := cgroupfs.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree
}

// OpenStorage opens the storage of a node with these mounts and this sysfs. root is the
// node's root directory.
func OpenStorage(t testing.TB, sys fs.FS, root, mounts string) *storage.Storage {
	t.Helper()
	table := filepath.Join(t.TempDir(), "mountinfo")
	if err := os.WriteFile(table, []byte(mounts), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := storage.Open(storage.Config{Sys: sys, Mountinfo: table, HostRoot: root})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

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

// RandomOps is what random operations of one direction cost by a model of io.cost. Each operation costs the disk a time, and so does each of
// its pages.
type RandomOps struct {
	Base, Page float64 // seconds
}

// IOPS returns the operations per second at which io.cost has given out 100 % of the model.
//
// Source: calc_vtime_cost_builtin in block/blk-iocost.c.
func (l RandomOps) IOPS(size int) float64 { return 1 / (l.Base + float64(max(1, size/4096))*l.Page) }

// RandomOf returns the costs of random operations by a model that passes [blkio.CostModel.Check].
//
// Source: calc_lcoefs in block/blk-iocost.c.
func RandomOf(m blkio.CostModel) (reads, writes RandomOps) {
	of := func(bps, iops uint64) RandomOps {
		perPage := 4096 / float64(bps)
		return RandomOps{Base: max(0, 1/float64(iops)-perPage), Page: perPage}
	}
	return of(m.Rbps, m.RRandIOPS), of(m.Wbps, m.WRandIOPS)
}
