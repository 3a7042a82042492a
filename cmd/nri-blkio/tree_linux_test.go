package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin"
)

// fakeSys is sysfs as the kernel lays it out.
type fakeSys struct{ fstest.MapFS }

// add makes a device below /sys/devices, with attributes "name=content".
func (f fakeSys) add(dir, dev string, attrs ...string) {
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

// on says what a device is made of.
func (f fakeSys) on(dir string, below ...string) {
	for _, b := range below {
		up := strings.Repeat("../", strings.Count(dir, "/")+2)
		f.link("devices/"+dir+"/slaves/"+path.Base(b), up+b)
	}
}

func (f fakeSys) link(name, target string) {
	f.MapFS[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
}

const twoGiB = "size=4194304"

// stackedSys has one of each: a partition, LVM over two disks with dm-crypt on
// it, RAID1 with a partition, multipath, NVMe with a hidden path, and what is to
// be left out.
func stackedSys() fakeSys {
	f := fakeSys{fstest.MapFS{}}
	f.add("pci/sda", "8:0", twoGiB, "device/model=Disk \x1b[31m", "queue/rotational=1", "queue/scheduler=[mq-deadline] none")
	f.add("pci/sda/sda1", "8:1", "size=1048576", "partition=1")
	f.add("pci/sda/sda2", "8:2", "size=2097152", "partition=2")
	f.add("pci/sdb", "8:16", twoGiB, "device/model=SSD")
	f.add("pci/sdc", "8:32", twoGiB, "ro=1")
	f.add("pci/sdd", "8:48", twoGiB)
	f.add("pci/sde", "65:256", twoGiB) // a minor beyond 255
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

const stackedMounts = `1 0 259:300 / / rw - ext4 /dev/nvme0n1 rw
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

// treeOf builds the tree of a node with these volumes' directories.
func treeOf(t *testing.T, sys fs.FS, mounts string, dirs ...string) *devicesReport {
	t.Helper()
	root := t.TempDir()
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := openStorage(t, sys, root, mounts)
	k := kubelet{storage: s, hostRoot: root, root: plugin.DefaultKubeletRoot}
	b := treeBuilder{
		storage: s, sys: storage.NewSysfs(sys),
		features: cgroupfs.Features{IOMax: blkio.Yes, IOWeight: blkio.Yes, IOLatency: blkio.Yes},
		qos:      map[blkio.Dev]bool{{Major: 8, Minor: 16}: true},
		swaps:    []storage.Swap{{Name: "/dev/zram0", Size: 4 << 20, Used: 1 << 20}, {Name: "/swap\x1bfile", File: true, Size: 1 << 20}},
	}
	var err error
	if b.devices, err = b.sys.Stack(); err != nil {
		t.Fatal(err)
	}
	if b.volumes, err = k.volumes(t.Context()); err != nil {
		t.Fatal(err)
	}
	pods := k.podNames(t.Context(), nil)
	for i := range b.volumes {
		b.volumes[i].pod = pods[b.volumes[i].UID]
	}
	r := &devicesReport{}
	r.Devices, r.Elsewhere = b.build(t.Context())
	return r
}

func openStorage(t *testing.T, sys fs.FS, root, mounts string) *storage.Storage {
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

func drawn(t *testing.T, r *devicesReport, all bool) string {
	t.Helper()
	var out bytes.Buffer
	if err := (&app{stdout: &out}).printTree(r, all); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.SplitSeq(out.String(), "\n") {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return strings.Join(lines, "\n")
}

const podsOf = plugin.DefaultKubeletRoot + "/pods/"

func TestTree(t *testing.T) {
	long := strings.Repeat("long", 60)
	r := treeOf(t, stackedSys(), stackedMounts,
		podsOf+"u1/volumes/kubernetes.io~csi/pvc-1", podsOf+"u1/volumes/kubernetes.io~nfs/share",
		podsOf+"u1/volumes/kubernetes.io~projected/token", podsOf+"u1/volumes/kubernetes.io~empty-dir/tmp",
		podsOf+"u2/volumes/kubernetes.io~empty-dir/evil\x1b[2J\n", podsOf+"u2/volumes/kubernetes.io~empty-dir/"+long,
		"/var/log/pods/prod_db-0_u1/db", "/var/log/pods/odd")
	want, err := os.ReadFile("testdata/tree.golden")
	got := drawn(t, r, false)
	if os.Getenv("UPDATE_SCRIPTS") != "" {
		err = os.WriteFile("testdata/tree.golden", []byte(got), 0o644)
		want = []byte(got)
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if strings.ContainsAny(got, "\x1b\x07\r\t") {
		t.Errorf("control characters in\n%q", got)
	}
}

// Whoever leaves out what is marked so has each thing once.
func TestTreeOnce(t *testing.T) {
	full, again := map[string]int{}, map[string]int{}
	var visit func(list []*treeNode)
	visit = func(list []*treeNode) {
		for _, n := range list {
			id := n.Kind + " " + n.Name + " " + n.Dev
			if n.Again {
				again[id]++
				if n.Children != nil || n.Max != nil {
					t.Errorf("%s is told twice", id)
				}
				continue
			}
			full[id]++
			visit(n.Children)
		}
	}
	visit(treeOf(t, stackedSys(), stackedMounts).Devices)
	for id, n := range full {
		if n != 1 {
			t.Errorf("%s is there %d times", id, n)
		}
	}
	want := map[string]int{
		"lvm dm-0 253:0": 1, "raid1 md0 9:0": 1, "multipath dm-2 253:2": 1, "filesystem btrfs 0:45": 1,
	}
	if d := cmp.Diff(want, again); d != "" {
		t.Errorf("again, -want +got:\n%s", d)
	}
}

// A place with hundreds of volumes stays readable, and all are to be had.
func TestTreeOfMany(t *testing.T) {
	var dirs []string
	for i := range 500 {
		dirs = append(dirs, fmt.Sprintf(podsOf+"u%03d/volumes/kubernetes.io~empty-dir/tmp", i))
	}
	r := treeOf(t, stackedSys(), stackedMounts, dirs...)
	few, all := drawn(t, r, false), drawn(t, r, true)
	if !strings.Contains(few, "└─and 481 more") || strings.Count(few, "\n") > 80 {
		t.Errorf("of 500 volumes and a swap file is drawn\n%s", few)
	}
	if n := strings.Count(all, "empty-dir"); n != 500 {
		t.Errorf("--all draws %d volumes of 500", n)
	}
}

// Whatever is mounted in a pod's directory is not looked at, nor are the types of
// what is there.
func TestVolumesBelowMounts(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"a/volumes/kubernetes.io~nfs/x/hidden", "b/volumes/kubernetes.io~csi/y", "b/volumeDevices/kubernetes.io~csi/z", "b/volumeDevices/kubernetes.io~csi/b"} {
		if err := os.MkdirAll(filepath.Join(root, podsOf, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const mounts = "1 0 259:300 / / rw - ext4 /dev/nvme0n1 rw\n2 1 0:60 / /var/lib/kubelet/pods/a/volumes rw - nfs4 filer:/ rw\n"
	list := func(mounts string) (out []string) {
		k := kubelet{storage: openStorage(t, stackedSys(), root, mounts), hostRoot: root, root: plugin.DefaultKubeletRoot}
		found, err := k.volumes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range found {
			out = append(out, fmt.Sprint(v.UID, " ", v.Plugin, " ", v.Name, " ", strings.TrimPrefix(v.path, podsOf), " ", v.Block))
		}
		return out
	}
	want := []string{
		"b kubernetes.io/csi y b/volumes/kubernetes.io~csi/y/mount false",
		"b kubernetes.io/csi z b/volumeDevices/kubernetes.io~csi/z true",
	}
	if d := cmp.Diff(want, list(mounts)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got := list("1 0 0:60 / / rw - nfs4 filer:/ rw\n"); got != nil {
		t.Errorf("a kubelet on a network filesystem was read: %v", got)
	}
}

func TestLatency(t *testing.T) {
	disk := storage.DiskInfo{}
	stacked := storage.DiskInfo{Below: []blkio.Disk{{Name: "sda"}, {Name: "sdb"}}}
	for _, tt := range []struct {
		kernel blkio.Tri
		disk   storage.DiskInfo
		want   support
	}{
		{blkio.Yes, disk, support{OK: blkio.Yes}},
		{blkio.No, disk, support{blkio.No, "the kernel has no io.latency (CONFIG_BLK_CGROUP_IOLATENCY)"}},
		{blkio.Unknown, disk, support{blkio.Unknown, noIOCgroup}},
		{blkio.Yes, stacked, support{blkio.No, "io.latency works on the physical disks below"}},
	} {
		if got := latencyOf(cgroupfs.Features{IOLatency: tt.kernel}, tt.disk); got != tt.want {
			t.Errorf("%v: got %v, want %v", tt.kernel, got, tt.want)
		}
	}
}

// On the machine that runs the tests, whatever it has.
func TestDevicesHere(t *testing.T) {
	if _, err := os.Stat("/sys/block"); err != nil {
		t.Skip("no sysfs here")
	}
	cgroups := t.TempDir()
	if err := os.WriteFile(filepath.Join(cgroups, "cgroup.controllers"), []byte("io\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	a := &app{stdout: &stdout, stderr: &stderr, getenv: os.Getenv, openCgroups: cgroupfs.OpenTree}
	if err := a.run(t.Context(), []string{"devices", "--all", "--cgroup-root", cgroups}); err != nil {
		t.Fatal(err, stderr.String())
	}
	disks, err := storage.NewSysfs(os.DirFS("/sys")).Disks()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range disks {
		if d.Dev.Major != 1 && !strings.Contains(stdout.String(), d.Name+" ") {
			t.Errorf("%s is not in\n%s", d.Name, stdout.String())
		}
	}
	t.Log(stdout.String(), stderr.String())
}
