// Package fakenode provides the files of a fictitious node for tests: sysfs, mounts, the
// directories and cgroups of pods, and processes.
package fakenode

import (
	"fmt"
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

// Pods is the directory of the pods in the kubelet's directory.
const Pods = "/var/lib/kubelet/pods/"

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

// WriteOrphans writes a node with OrphanMounts below a temporary directory, and returns the root. The node has
// the kubelet's directories, and the cgroups of its pods in the directory cg. driver, systemd or cgroupfs,
// decides on the names of the cgroups.
func WriteOrphans(t testing.TB, driver string) (root string) {
	t.Helper()
	root = t.TempDir()
	cgroups := map[string]string{"live-1": "populated 1\n", "left-1": "populated 0\n", "waits-1": "populated 0\n"}
	files := map[string]string{"cg/cgroup.controllers": "io\n"}
	for uid, events := range cgroups {
		dir := "cg/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
		if driver == "cgroupfs" {
			dir = "cg/kubepods/burstable/pod" + uid
		}
		files[dir+"/cgroup.events"] = events
		files[dir+"/container/cgroup.events"] = events
	}
	for _, uid := range []string{"gone-1", "gone-2", "live-1", "left-1", "waits-1"} {
		files[Pods+uid+"/plugins/.keep"] = ""
	}
	files[Pods+"left-1/containers/db/1234"] = ""
	files["/var/log/pods/prod_db-0_gone-1/.keep"] = ""
	files["/var/log/pods/kube-system_agent-x_live-1/.keep"] = ""
	WriteFiles(t, root, files)
	return root
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

// OrphanMounts is a mountinfo with volumes of pods. The pod live-1 runs, waits-1 waits for
// its first container, and the others have ended.
const OrphanMounts = `1 0 259:300 / / rw shared:1 - ext4 /dev/nvme0n1 rw
20 1 253:1 / /var/lib/kubelet/plugins/kubernetes.io/csi/x/globalmount rw - xfs /dev/mapper/luks rw
21 1 253:1 / /var/lib/kubelet/pods/gone-1/volumes/kubernetes.io~csi/data/mount rw - xfs /dev/mapper/luks rw
22 1 259:300 /srv/sub /var/lib/kubelet/pods/gone-1/volume-subpaths/conf/app/0 rw - ext4 /dev/nvme0n1 rw
23 1 0:60 / /var/lib/kubelet/pods/gone-2/volumes/kubernetes.io~nfs/evil\033[2J rw - nfs4 filer:/ rw
24 1 9:0 / /var/lib/kubelet/pods/live-1/volumes/kubernetes.io~csi/data/mount rw - ext4 /dev/md0 rw
25 1 253:2 / /var/lib/kubelet/pods/left-1/volumes/kubernetes.io~csi/data/mount rw - ext4 /dev/dm-2 rw
26 1 253:2 /a /var/lib/kubelet/pods/waits-1/volumes/kubernetes.io~csi/data/mount rw - ext4 /dev/dm-2 rw
27 1 0:70 / /var/lib/kubelet/pods/remote/ rw - nfs4 filer:/ rw
28 27 0:71 / /var/lib/kubelet/pods/remote/volumes/kubernetes.io~projected/token rw - tmpfs tmpfs rw
29 1 0:72 / /var/lib/kubelet/pods/gone-1/etc-hosts rw - tmpfs tmpfs rw
30 1 0:6 /dm-2 /var/lib/kubelet/pods/gone-1/volumeDevices/kubernetes.io~csi/raw rw - devtmpfs devtmpfs rw
`

// Proc returns a procfs with six processes. These are the node's first one, a service with a mount namespace of
// its own, and one with files open inside and outside a volume. Two more are of a pod that has volumes of
// OrphanMounts mounted elsewhere, and one has none of these mounts.
func Proc() fstest.MapFS {
	f := fstest.MapFS{}
	file := func(name, data string) { f[name] = &fstest.MapFile{Data: []byte(data)} }
	link := func(name, target string) {
		f[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
	}
	fd := func(mount int) string { return fmt.Sprintf("pos:\t0\nflags:\t02\nmnt_id:\t%d\nino:\t7\n", mount) }
	const pod = "101 100 259:300 / / rw - overlay overlay rw\n" +
		"102 101 253:1 / /host/data\\033[2J rw - xfs /dev/mapper/luks rw\n" +
		"103 101 259:300 /srv /elsewhere rw - ext4 /dev/nvme0n1 rw\n" +
		"104 101 259:300 /srv/sub/deep /conf rw - ext4 /dev/nvme0n1 rw\n"
	// A service has the node's mounts, and loses those that the node unmounts.
	service := strings.NewReplacer("\n2", "\n302", " shared:1 ", " master:1 ").Replace(OrphanMounts)
	service = strings.ReplaceAll("301"+strings.TrimPrefix(service, "1"), " 1 ", " 301 ")
	for pid, comm := range map[int]string{60: "service", 1: "systemd", 30: "tail\n\x1b]0;evil\x07", 40: "agent", 41: "agent", 50: "nginx"} {
		p := fmt.Sprint(pid, "/")
		file(p+"mountinfo", OrphanMounts)
		file(p+"comm", comm+"\n")
		file(p+"cgroup", "0::/system.slice\n")
		link(p+"cwd", "/")
		link(p+"root", "/")
		if pid == 40 || pid == 41 {
			file(p+"mountinfo", pod)
			file(p+"cgroup", "0::/kubepods.slice/kubepods-podlive_1.slice/cri-containerd-1.scope\n")
		}
	}
	file("60/mountinfo", service)
	file("60/fdinfo/3", fd(3025))
	file("50/mountinfo", "200 100 0:99 / / rw - overlay overlay rw\n")
	file("30/fdinfo/0", fd(1))
	file("30/fdinfo/3", fd(21))
	file("30/fdinfo/4", fd(21))
	file("30/fdinfo/5", "pos:\t0\n")
	link("30/cwd", Pods+"gone-1/volumes/kubernetes.io~csi/data/mount/dir (deleted)")
	file("41/fdinfo/9", fd(102))
	file("50/fdinfo/9", fd(21)) // passed to it, so it is not searched for
	file("self/comm", "x\n")
	return f
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
