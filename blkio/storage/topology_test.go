package storage

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// fakeSysfs builds sysfs as the kernel lays it out: directories under devices,
// and symlinks to them.
type fakeSysfs struct {
	fstest.MapFS
}

// add makes a device. dir is below /sys/devices; attrs are "name=content".
func (f fakeSysfs) add(dir, dev string, attrs ...string) {
	full := "devices/" + dir
	name := full[strings.LastIndex(full, "/")+1:]
	if dev != "" {
		f.MapFS[full+"/dev"] = &fstest.MapFile{Data: []byte(dev + "\n")}
		f.link("dev/block/"+dev, "../../"+full)
	}
	partition := false
	for _, attr := range attrs {
		key, value, _ := strings.Cut(attr, "=")
		partition = partition || key == "partition"
		f.MapFS[full+"/"+key] = &fstest.MapFile{Data: []byte(value + "\n")}
	}
	f.link("class/block/"+name, "../../"+full)
	if !partition {
		f.link("block/"+name, "../"+full)
	}
}

func (f fakeSysfs) link(name, target string) {
	f.MapFS[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
}

const (
	scsi    = "pci0000:00/0000:00:05.0/virtio2/host0/target0:0:0/0:0:0:"
	virtual = "virtual/block/"
	subsys  = "virtual/nvme-subsystem/nvme-subsys0/"

	btrfsUUID = "fs/btrfs/0f7ac8dd-98b4-4e53-8c3e-7d8d2d5a5b1b/"
)

// newFakeSysfs has the devices that nodeMounts names.
func newFakeSysfs() fakeSysfs {
	f := fakeSysfs{fstest.MapFS{}}
	f.add(scsi+"0/block/sda", "8:0", "size=4194304", "ro=0", "queue/rotational=1", "queue/scheduler=none [mq-deadline] kyber bfq ", "mq/0/nr_tags=1", "serial=QM1", "device/wwid=t10.1", "device/model=QEMU HARDDISK   ", "hidden=0", "diskseq=7")
	f.add(scsi+"0/block/sda/sda1", "8:1", "partition=1", "size=4190208")
	f.add(scsi+"0/block/sda/sda2", "8:2", "partition=2", "size=2048")
	f.add(scsi+"1/block/sdb", "8:16", "size=4194304", "ro=0", "queue/rotational=0", "queue/scheduler=[none] mq-deadline")
	f.add(scsi+"1/block/sdb/sdb1", "8:17", "partition=1", "size=4190208")
	f.add(scsi+"2/block/sdc", "8:32", "size=2048", "ro=1")
	f.add(scsi+"3/block/sdd", "8:48", "size=2048")
	// NVMe multipath: the head has the number, the path has none.
	f.add(subsys+"nvme0n1", "259:1", "size=2048", "hidden=0", "wwid=eui.0025", "device/serial=S4EV  ")
	f.add(subsys+"nvme0n1/nvme0n1p1", "259:300", "partition=1", "size=1024")
	f.add("pci0000:00/0000:00:06.0/nvme/nvme0/nvme0c0n1", "", "size=2048", "hidden=1")
	// A dm-crypt on an LV on a partition and a disk.
	f.add(virtual+"dm-0", "253:0", "size=4096", "dm/name=vg-lv", "queue/scheduler=none")
	f.add(virtual+"dm-1", "253:1", "size=4096", "dm/name=luks-home")
	f.link("devices/"+virtual+"dm-0/slaves/sdb1", "../../../../"+scsi+"1/block/sdb/sdb1")
	f.link("devices/"+virtual+"dm-0/slaves/sdd", "../../../../"+scsi+"3/block/sdd")
	f.link("devices/"+virtual+"dm-1/slaves/dm-0", "../../dm-0")
	f.add(virtual+"loop0", "7:0", "size=2048", "loop/backing_file=/srv/disk.img")
	f.add(virtual+"loop1", "7:1", "size=0")
	f.add(virtual+"zram0", "252:0", "size=0")
	f.add(virtual+"cciss!c0d0", "104:0", "size=2048")

	f.link(btrfsUUID+"devices/sdc", "../../../../devices/"+scsi+"2/block/sdc")
	f.link(btrfsUUID+"devices/sda2", "../../../../devices/"+scsi+"0/block/sda/sda2")
	f.link("fs/btrfs/5b1b/devices/dm-1", "../../../../devices/"+virtual+"dm-1")
	f.MapFS["fs/btrfs/features/raid56"] = &fstest.MapFile{Data: []byte("0\n")}
	return f
}

func TestWholeDisk(t *testing.T) {
	sys := NewSysfs(newFakeSysfs())
	tests := []struct {
		dev  blkio.Dev
		want blkio.Disk
	}{
		{blkio.Dev{Major: 8, Minor: 0}, blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 0}, Name: "sda"}},
		{blkio.Dev{Major: 8, Minor: 17}, blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 16}, Name: "sdb"}},
		{blkio.Dev{Major: 259, Minor: 1}, blkio.Disk{Dev: blkio.Dev{Major: 259, Minor: 1}, Name: "nvme0n1"}},
		{blkio.Dev{Major: 259, Minor: 300}, blkio.Disk{Dev: blkio.Dev{Major: 259, Minor: 1}, Name: "nvme0n1"}},
		{blkio.Dev{Major: 253, Minor: 0}, blkio.Disk{Dev: blkio.Dev{Major: 253, Minor: 0}, Name: "dm-0"}},
		{blkio.Dev{Major: 7, Minor: 0}, blkio.Disk{Dev: blkio.Dev{Major: 7, Minor: 0}, Name: "loop0"}},
		{blkio.Dev{Major: 104, Minor: 0}, blkio.Disk{Dev: blkio.Dev{Major: 104, Minor: 0}, Name: "cciss!c0d0"}},
	}
	for _, tt := range tests {
		got, err := sys.WholeDisk(tt.dev)
		if err != nil || got != tt.want {
			t.Errorf("WholeDisk(%s) is %v, %v, want %v", tt.dev, got, err, tt.want)
		}
	}
	_, err := sys.WholeDisk(blkio.Dev{Major: 65, Minor: 16})
	if !errors.Is(err, blkio.ErrNoDevice) {
		t.Errorf("not a sentinel: %v", err)
	}
	checkError(t, err, "block device 65:16: no such disk")
}

func TestNumber(t *testing.T) {
	sys := NewSysfs(newFakeSysfs())
	for in, want := range map[string]blkio.Dev{
		"/dev/sdb1": {Major: 8, Minor: 17}, "/dev/mapper/vg-lv": {Major: 253, Minor: 0}, "/dev/dm-1": {Major: 253, Minor: 1}, "/dev/cciss/c0d0": {Major: 104, Minor: 0},
	} {
		got, err := sys.number(in)
		if err != nil || got != want {
			t.Errorf("number(%q) is %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"/dev/", "/dev/..", "/dev/../sda", "/dev/disk/by-uuid/1", "/dev/mapper/x", "tank/data", "/dev/nvme0c0n1"} {
		if got, err := sys.number(in); !errors.Is(err, blkio.ErrNoDevice) {
			t.Errorf("number(%q) is %v, %v", in, got, err)
		}
	}
}

func TestPhysical(t *testing.T) {
	f := newFakeSysfs()
	sys := NewSysfs(f)
	sdb, sdd := blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 16}, Name: "sdb"}, blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 48}, Name: "sdd"}
	for dev, want := range map[blkio.Dev][]blkio.Disk{
		{Major: 253, Minor: 1}: {sdb, sdd}, {Major: 253, Minor: 0}: {sdb, sdd}, {Major: 8, Minor: 17}: {sdb}, {Major: 8, Minor: 48}: {sdd},
	} {
		got, err := sys.Physical(dev)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", dev, err, diff)
		}
	}
	f.link("devices/"+virtual+"dm-0/slaves/dm-1", "../../dm-1")
	if _, err := sys.Physical(blkio.Dev{Major: 253, Minor: 0}); err == nil {
		t.Error("a circle of devices has a bottom")
	}
}

func TestBtrfs(t *testing.T) {
	sys := NewSysfs(newFakeSysfs())
	want := []blkio.Disk{{Dev: blkio.Dev{Major: 8, Minor: 0}, Name: "sda"}, {Dev: blkio.Dev{Major: 8, Minor: 32}, Name: "sdc"}}
	for _, member := range []blkio.Dev{{Major: 8, Minor: 32}, {Major: 8, Minor: 2}} {
		members, err := sys.BtrfsMembers(member)
		checkError(t, err, "")
		got, err := sys.wholeDisks(members)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", member, err, diff)
		}
	}
	_, err := sys.BtrfsMembers(blkio.Dev{Major: 8, Minor: 16})
	checkError(t, err, "no btrfs has sdb as a member: no such disk")
}

func TestDisks(t *testing.T) {
	got, err := NewSysfs(newFakeSysfs()).Disks()
	checkError(t, err, "")
	sda, sdb, sdc, sdd := blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 0}, Name: "sda"}, blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 16}, Name: "sdb"}, blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 32}, Name: "sdc"}, blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 48}, Name: "sdd"}
	dm0 := blkio.Disk{Dev: blkio.Dev{Major: 253, Minor: 0}, Name: "dm-0"}
	want := []DiskInfo{
		{Disk: blkio.Disk{Dev: blkio.Dev{Major: 7, Minor: 0}, Name: "loop0"}, Size: 1 << 20, Drive: Drive{Model: "/srv/disk.img"}},
		{
			Disk: sda, Size: 2 << 30, Seq: 7, Queue: Queue{Rotational: true, RequestBased: true, Scheduler: "mq-deadline"},
			Drive:      Drive{Model: "QEMU HARDDISK", Serial: "QM1", WWID: "t10.1"},
			Partitions: []blkio.Disk{{Dev: blkio.Dev{Major: 8, Minor: 1}, Name: "sda1"}, {Dev: blkio.Dev{Major: 8, Minor: 2}, Name: "sda2"}},
		},
		{Disk: sdb, Size: 2 << 30, Queue: Queue{Scheduler: "none"}, Partitions: []blkio.Disk{{Dev: blkio.Dev{Major: 8, Minor: 17}, Name: "sdb1"}}},
		{Disk: sdc, Size: 1 << 20, ReadOnly: true},
		{Disk: sdd, Size: 1 << 20},
		{Disk: blkio.Disk{Dev: blkio.Dev{Major: 104, Minor: 0}, Name: "cciss!c0d0"}, Size: 1 << 20},
		{Disk: dm0, Size: 2 << 20, Queue: Queue{Scheduler: "none"}, Drive: Drive{Model: "vg-lv"}, Below: []blkio.Disk{sdb, sdd}},
		{Disk: blkio.Disk{Dev: blkio.Dev{Major: 253, Minor: 1}, Name: "dm-1"}, Size: 2 << 20, Drive: Drive{Model: "luks-home"}, Below: []blkio.Disk{dm0}},
		{Disk: blkio.Disk{Dev: blkio.Dev{Major: 259, Minor: 1}, Name: "nvme0n1"}, Size: 1 << 20, Drive: Drive{Serial: "S4EV", WWID: "eui.0025"}, Partitions: []blkio.Disk{{Dev: blkio.Dev{Major: 259, Minor: 300}, Name: "nvme0n1p1"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := NewSysfs(fstest.MapFS{}).Disks(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without sysfs: %v", err)
	}
}

// TestDisksHere reads the machine that runs the tests, with any devices. Each listed one must resolve to
// itself.
func TestDisksHere(t *testing.T) {
	if _, err := os.Stat("/sys/block"); err != nil {
		t.Skip("no sysfs here")
	}
	sys := NewSysfs(os.DirFS("/sys"))
	disks, err := sys.Disks()
	checkError(t, err, "")
	for _, d := range disks {
		for _, dev := range append([]blkio.Disk{d.Disk}, d.Partitions...) {
			if whole, err := sys.WholeDisk(dev.Dev); err != nil || whole != d.Disk {
				t.Errorf("WholeDisk(%s) is %v, %v, want %v", dev.Dev, whole, err, d.Disk)
			}
		}
		if got, err := sys.Physical(d.Dev); err != nil || len(got) == 0 {
			t.Errorf("Physical(%s): %v, %v", d.Dev, got, err)
		}
	}
}

// TestLeavingPartition verifies that while a partition table is read again, a partition can be without a number
// for a moment. Its disk and the other partitions stay.
func TestLeavingPartition(t *testing.T) {
	f := newFakeSysfs()
	delete(f.MapFS, "devices/"+scsi+"0/block/sda/sda1/dev")
	disks, err := NewSysfs(f).Disks()
	checkError(t, err, "")
	for _, d := range disks {
		if d.Name == "sda" {
			if diff := cmp.Diff([]blkio.Disk{{Dev: blkio.Dev{Major: 8, Minor: 2}, Name: "sda2"}}, d.Partitions); diff != "" {
				t.Error(diff)
			}
			return
		}
	}
	t.Errorf("sda is not among %+v", disks)
}

// TestUnreadableSysfs verifies that an unreadable or invalid fact of a disk is an error, and does not give a
// node with fewer disks.
func TestUnreadableSysfs(t *testing.T) {
	sda, dm := "devices/"+scsi+"0/block/sda/", "devices/"+virtual+"dm-0/"
	for name, tt := range map[string]struct {
		change func(f fakeSysfs)
		want   string
	}{
		"no disks":                  {func(f fakeSysfs) { f.MapFS["block"] = &fstest.MapFile{} }, "list disks: "},
		"a number that is none":     {func(f fakeSysfs) { f.MapFS[sda+"dev"].Data = []byte("8\n") }, `list disks: read block/sda/dev: parse device number "8": not MAJ:MIN`},
		"a number of a partition":   {func(f fakeSysfs) { f.MapFS[sda+"sda1/dev"].Data = nil }, `list disks: read block/sda/sda1/dev: parse device number ""`},
		"a number of what is below": {func(f fakeSysfs) { f.MapFS["devices/"+scsi+"3/block/sdd/dev"].Data = []byte("x:1\n") }, "list disks: "},
		"a file instead of links": {func(f fakeSysfs) {
			delete(f.MapFS, dm+"slaves/sdb1")
			delete(f.MapFS, dm+"slaves/sdd")
			f.MapFS[dm+"slaves"] = &fstest.MapFile{}
		}, "list disks: read block/dm-0/slaves: "},
	} {
		f := newFakeSysfs()
		tt.change(f)
		if got, err := NewSysfs(f).Disks(); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %d disks, %v, want %s", name, len(got), err, tt.want)
		}
		if got, err := NewSysfs(f).Stack(); err == nil {
			t.Errorf("%s: a stack of %d devices", name, len(got))
		}
	}
}

// TestHasBtrfs verifies that a whole disk has the btrfs of its partitions.
func TestHasBtrfs(t *testing.T) {
	for disk, want := range map[blkio.Disk]bool{sda: true, sdb: false, sdc: true, sdd: false} {
		if got := NewSysfs(newFakeSysfs()).HasBtrfs(disk.Dev); got != want {
			t.Errorf("%s: %t, want %t", disk.Name, got, want)
		}
	}
	if !NewSysfs(failingFS{newFakeSysfs().MapFS, "devices/sda2", unix.EIO}).HasBtrfs(sdb.Dev) {
		t.Error("a disk has no btrfs although that cannot be read")
	}
	if NewSysfs(fstest.MapFS{}).HasBtrfs(sda.Dev) {
		t.Error("a disk has btrfs without the module")
	}
}
