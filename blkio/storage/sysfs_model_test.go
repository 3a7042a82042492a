package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// deviceModel is a random graph of block devices: disks with a partition each, and layers of
// mapped devices on those below.
type deviceModel struct {
	fakeSysfs
	disks []blkio.Disk
	below map[blkio.Dev][]blkio.Disk // directly, whole disks
}

func newDeviceModel(rng *rand.Rand) *deviceModel {
	m := &deviceModel{fakeSysfs{fstest.MapFS{}}, nil, map[blkio.Dev][]blkio.Disk{}}
	// The disks and partitions of lower layers, by the target of a link in slaves.
	type place struct {
		disk   blkio.Disk
		target string
	}
	var lower []place
	for i := range 2 + rng.IntN(4) {
		d := blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: uint32(16 * i)}, Name: "sd" + string(rune('a'+i))}
		dir := scsi + strconv.Itoa(i) + "/block/" + d.Name
		m.add(dir, d.Dev.String(), "size=2048")
		m.add(dir+"/"+d.Name+"1", fmt.Sprintf("8:%d", 16*i+1), "partition=1")
		m.disks = append(m.disks, d)
		lower = append(lower, place{d, "../../../../" + dir}, place{d, "../../../../" + dir + "/" + d.Name + "1"})
	}
	for i := range rng.IntN(6) {
		d := blkio.Disk{Dev: blkio.Dev{Major: 253, Minor: uint32(i)}, Name: "dm-" + strconv.Itoa(i)}
		m.add(virtual+d.Name, d.Dev.String(), "dm/name=v"+strconv.Itoa(i))
		for range 1 + rng.IntN(3) {
			p := lower[rng.IntN(len(lower))]
			m.link("devices/"+virtual+d.Name+"/slaves/"+p.target[strings.LastIndex(p.target, "/")+1:], p.target)
			if !slices.Contains(m.below[d.Dev], p.disk) {
				m.below[d.Dev] = append(m.below[d.Dev], p.disk)
			}
		}
		m.disks = append(m.disks, d)
		lower = append(lower, place{d, "../../../../" + virtual + d.Name})
	}
	return m
}

// under returns the disks below a disk at any depth, and those of them at the bottom.
func (m *deviceModel) under(d blkio.Disk) (all, bottom map[blkio.Dev]blkio.Disk) {
	all, bottom = map[blkio.Dev]blkio.Disk{}, map[blkio.Dev]blkio.Disk{}
	var walk func(d blkio.Disk)
	walk = func(d blkio.Disk) {
		if len(m.below[d.Dev]) == 0 {
			bottom[d.Dev] = d
		}
		for _, b := range m.below[d.Dev] {
			all[b.Dev] = b
			walk(b)
		}
	}
	walk(d)
	return all, bottom
}

// TestStacksOfDevices compares the disks below each device of random stacks with the model:
// weights belong to those at the bottom, and I/O is charged on all.
func TestStacksOfDevices(t *testing.T) {
	for seed := range uint64(40) {
		m := newDeviceModel(rand.New(rand.NewPCG(seed, 0)))
		sys := NewSysfs(m.MapFS)
		n := newFakeNode(t, nodeMounts)
		n.current.Load().sys = sys
		for _, d := range m.disks {
			all, bottom := m.under(d)
			physical, err := sys.Physical(d.Dev)
			if diff := cmp.Diff(sortedDisks(bottom), physical); diff != "" || err != nil {
				t.Fatalf("seed %d: at the bottom of %v (-want, +got): %v\n%s", seed, d, err, diff)
			}
			if diff := cmp.Diff(sortedDisks(all), n.Under(t.Context(), d.Dev)); diff != "" {
				t.Fatalf("seed %d: under %v (-want, +got):\n%s", seed, d, diff)
			}
			if whole, err := sys.WholeDisk(d.Dev); whole != d || err != nil {
				t.Errorf("seed %d: the whole disk of %v is %v, %v", seed, d, whole, err)
			}
			if d.Dev.Major == 8 {
				part := blkio.Dev{Major: 8, Minor: d.Dev.Minor + 1}
				if whole, err := sys.WholeDisk(part); whole != d || err != nil {
					t.Errorf("seed %d: the whole disk of %v is %v, %v", seed, part, whole, err)
				}
			}
		}
		stack, err := sys.Stack()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range stack {
			if d.Kind == KindDisk && len(d.Parents) > 0 || d.Kind == KindDM && len(d.Parents) == 0 {
				t.Errorf("seed %d: %v is of the kind %s and has %v below", seed, d.Disk, d.Kind, d.Parents)
			}
		}
	}
}

// TestBadNumbers has files that the kernel does not write, and links that lead nowhere, as
// in a sysfs that is changing or not one at all.
func TestBadNumbers(t *testing.T) {
	f := newFakeSysfs()
	bad := map[string]string{"empty": "", "word": "x", "one": "8", "negative": "8:-1", "large": "8:4294967296", "three": "8:1:2"}
	for name, number := range bad {
		f.MapFS["devices/"+virtual+name+"/dev"] = &fstest.MapFile{Data: []byte(number + "\n")}
		f.link("class/block/"+name, "../../devices/"+virtual+name)
	}
	f.link("class/block/dangling", "../../devices/none")
	f.link("dev/block/8:200", "../../devices/none")
	sys := NewSysfs(f)
	for name := range bad {
		if dev, err := sys.number("/dev/" + name); err == nil || dev != (blkio.Dev{}) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, %v", name, dev, err)
		}
	}
	for _, node := range []string{"/dev/dangling", "/dev/none", "/dev/", "", "/dev/mapper/none", "/dev/mapper/", "/dev/../sda", "/dev//sda", "/dev/./sda"} {
		if dev, err := sys.number(node); !errors.Is(err, blkio.ErrNoDevice) {
			t.Errorf("%q: %v, %v", node, dev, err)
		}
	}
	// The number of a device without a directory is known, but no other fact.
	if disk, err := sys.WholeDisk(blkio.Dev{Major: 8, Minor: 200}); err == nil && disk.Name != "none" {
		t.Errorf("a device whose directory has gone: %v, %v", disk, err)
	}
}

// failingFS fails for paths with a part in them.
type failingFS struct {
	fstest.MapFS
	part string
	err  error
}

func (f failingFS) Open(name string) (fs.File, error) {
	if strings.Contains(name, f.part) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: f.err}
	}
	return f.MapFS.Open(name)
}

func (f failingFS) ReadFile(name string) ([]byte, error) {
	if strings.Contains(name, f.part) {
		return nil, &fs.PathError{Op: "read", Path: name, Err: f.err}
	}
	return f.MapFS.ReadFile(name)
}

func (f failingFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if strings.Contains(name, f.part) {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: f.err}
	}
	return f.MapFS.ReadDir(name)
}

func (f failingFS) ReadLink(name string) (string, error) {
	if strings.Contains(name, f.part) {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: f.err}
	}
	return f.MapFS.ReadLink(name)
}

// TestSysfsFails verifies that a failure of the system is not taken for a device that is not
// there: a limit for it would be dropped.
func TestSysfsFails(t *testing.T) {
	for part, call := range map[string]func(Sysfs) error{
		"dev/block/8:16":  func(s Sysfs) error { _, err := s.WholeDisk(blkio.Dev{Major: 8, Minor: 16}); return err },
		"sdb/dev":         func(s Sysfs) error { _, err := s.WholeDisk(blkio.Dev{Major: 8, Minor: 17}); return err },
		"dm-0/slaves":     func(s Sysfs) error { _, err := s.Physical(blkio.Dev{Major: 253}); return err },
		"class/block/sdb": func(s Sysfs) error { _, err := s.number("/dev/sdb"); return err },
		"fs/btrfs":        func(s Sysfs) error { _, err := s.BtrfsMembers(blkio.Dev{Major: 8, Minor: 32}); return err },
		"devices/sda2":    func(s Sysfs) error { _, err := s.BtrfsMembers(blkio.Dev{Major: 8, Minor: 32}); return err },
	} {
		err := call(NewSysfs(failingFS{newFakeSysfs().MapFS, part, unix.EIO}))
		if !errors.Is(err, unix.EIO) || errors.Is(err, blkio.ErrNoDevice) {
			t.Errorf("%s: %v", part, err)
		}
		if err := call(NewSysfs(newFakeSysfs())); err != nil {
			t.Errorf("%s, without the failure: %v", part, err)
		}
	}
}

// TestFailureIsForLogs verifies that the reason that a tenant reads of a failure of the node
// names nothing of it, and that the error for the log does.
func TestFailureIsForLogs(t *testing.T) {
	for _, tt := range []struct {
		err     error
		reason  string
		logged  bool
		missing bool
	}{
		{fmt.Errorf("read /sys/x: %w", unix.EIO), resolveFailed, true, false},
		{fmt.Errorf("open /sys/x: %w", unix.EMFILE), resolveFailed, true, false},
		{fmt.Errorf("open /sys/x: %w", unix.ENFILE), resolveFailed, true, false},
		{fmt.Errorf("open /sys/x: %w", unix.ENOMEM), resolveFailed, true, false},
		{fmt.Errorf("open /sys/x: %w", fs.ErrPermission), resolveFailed, true, false},
		{fmt.Errorf("block device 8:0: %w", blkio.ErrNoDevice), "block device 8:0: no such disk", false, true},
		{errors.New("oddfs has no block device"), "oddfs has no block device", false, false},
	} {
		var b blkio.Backing
		setReason(&b, tt.err)
		if b.Reason != tt.reason || (b.Err != nil) != tt.logged || b.Missing != tt.missing {
			t.Errorf("%v: %+v", tt.err, b)
		}
	}
}

// TestKinds has the UUIDs and levels that distinguish kinds of devices.
func TestKinds(t *testing.T) {
	f := fakeSysfs{fstest.MapFS{}}
	want := map[string]DeviceKind{}
	add := func(name string, kind DeviceKind, attrs ...string) {
		f.add(virtual+name, fmt.Sprintf("250:%d", len(want)), attrs...)
		want[name] = kind
	}
	add("dm-0", KindLVM, "dm/name=vg-lv", "dm/uuid=LVM-abc")
	add("dm-1", KindCrypt, "dm/name=luks", "dm/uuid=CRYPT-LUKS2-abc")
	add("dm-2", KindMultipath, "dm/name=mpatha", "dm/uuid=mpath-360")
	add("dm-3", KindDM, "dm/name=thin")
	add("dm-4", KindDM, "dm/name=part", "dm/uuid=part1-mpath-360")
	add("dm-5", KindDM, "dm/name=lower", "dm/uuid=lvm-abc")
	add("md0", "raid1", "md/level=raid1")
	add("md1", "raid10", "md/level=raid10")
	add("md2", KindMD, "md/level=linear")
	add("loop0", KindLoop, "loop/backing_file=/a")
	add("loop1", KindDisk) // no file is set up
	add("nbd0", KindDisk)
	sys := NewSysfs(f)
	for name, kind := range want {
		if got := sys.kind("block/" + name); got != kind {
			t.Errorf("%s is %q, want %q", name, got, kind)
		}
	}
}

// TestText verifies that an attribute is one line, and that a missing one is none.
func TestText(t *testing.T) {
	sys := NewSysfs(fstest.MapFS{
		"a": {Data: []byte("  one \nand another\n")}, "n": {Data: []byte("42\n")}, "negative": {Data: []byte("-1\n")},
		"large": {Data: []byte("18446744073709551616\n")}, "empty": {},
	})
	for name, want := range map[string]string{"a": "one", "n": "42", "empty": "", "none": "", "../etc/passwd": ""} {
		if got := sys.text(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]uint64{"n": 42, "a": 0, "negative": 0, "large": 0, "empty": 0, "none": 0} {
		if got := sys.count(name); got != want {
			t.Errorf("%s counts %d, want %d", name, got, want)
		}
	}
}

// TestRemoteTypesAreNotLocal verifies for each type without a disk that a served filesystem is never read,
// because a lookup there can hang.
func TestRemoteTypesAreNotLocal(t *testing.T) {
	local := map[string]bool{"tmpfs": true, "ramfs": true, "devtmpfs": true, "overlay": true, "btrfs": true, "bcachefs": true, "zfs": true}
	for _, fstype := range []string{
		"nfs", "nfs4", "cifs", "smb3", "ceph", "afs", "lustre", "beegfs", "gpfs", "wekafs", "glusterfs", "orangefs", "9p", "virtiofs",
		"vboxsf", "fuse", "fuse.s3fs", "fuseblk", "autofs", "aufs", "proc", "sysfs", "cgroup2", "nsfs", "unknownfs", "",
		"tmpfs", "ramfs", "devtmpfs", "overlay", "btrfs", "bcachefs", "zfs",
	} {
		if got := isLocal(&Mount{FSType: fstype}); got != local[fstype] {
			t.Errorf("%q without a block device: local is %v", fstype, got)
		}
		if isLocal(&Mount{FSType: fstype, Unreadable: badLine, Dev: blkio.Dev{Major: 8}}) {
			t.Errorf("%q of an unreadable line is local", fstype)
		}
		if fstype != "" && !local[fstype] && fstype != "unknownfs" && isLocal(&Mount{FSType: fstype, Dev: blkio.Dev{Major: 8}}) {
			t.Errorf("%q with a device number is local", fstype)
		}
	}
}

// TestFilesystemAt verifies the number of a mountpoint, and that a directory below one, or a
// mountpoint that is hidden, has none.
func TestFilesystemAt(t *testing.T) {
	n := newFakeNode(t, nodeMounts+"60 29 8:48 / /srv rw - ext4 /dev/sdd rw\n")
	for p, want := range map[string]string{
		"/": "8:1", "/srv": "8:48", "/proc": "0:21", "/srv/lv": "0:0", "/srv/none": "0:0", "/etc": "0:0", "/none": "0:0",
	} {
		if got := n.FilesystemAt(p).String(); got != want {
			t.Errorf("%s is %s, want %s", p, got, want)
		}
	}
}

// TestNodeByName verifies that the names of devices are found by sysfs, without /dev.
func TestNodeByName(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	for name, want := range map[string]string{
		"/dev/sdb1": "8:17", "/dev/mapper/vg-lv": "253:0", "/dev/cciss/c0d0": "104:0", "/dev/nvme0n1p1": "259:300",
	} {
		if dev, err := n.Node(name); dev.String() != want || err != nil {
			t.Errorf("%s: %v, %v, want %s", name, dev, err, want)
		}
	}
	for _, name := range []string{"/dev/sdz", "/dev/mapper/none", "/dev/disk/by-id/none", ""} {
		if dev, err := n.Node(name); !errors.Is(err, blkio.ErrNoDevice) {
			t.Errorf("%q: %v, %v", name, dev, err)
		}
	}
}

// TestDeviceNodeIsNoDevice verifies that a path in /dev that is not a block device has no disk to limit: its
// backing is devtmpfs. Such a path of a raw block volume can be a file that the runtime created.
func TestDeviceNodeIsNoDevice(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	n.mkdir(t, "/dev/dir")
	n.symlink(t, "dir", "/dev/link")
	for _, p := range []string{"/dev", "/dev/dir", "/dev/link", "/dev/none"} {
		got := n.Resolve(t.Context(), p)
		if len(got.Disks) > 0 || got.Reason != "devtmpfs is memory, not a disk" || got.Mountpoint != "/dev" {
			t.Errorf("backing of %s is %+v, want devtmpfs at /dev without disks", p, got)
		}
	}
}

// TestPin verifies that a pinned path is resolved with each refresh, and pinned once.
func TestPin(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	n.mkdir(t, "/srv/lv/data")
	for range 3 {
		n.Pin("/srv/lv/data")
	}
	if len(n.pinned) != 1 {
		t.Errorf("pinned are %q", n.pinned)
	}
	n.setMounts(t, nodeMounts+"70 41 8:48 / /srv/lv/data rw - ext4 /dev/sdd rw\n")
	if err := n.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := n.Resolve(t.Context(), "/srv/lv/data"); len(got.Disks) != 1 || got.Disks[0] != sdd {
		t.Errorf("after a mount: %+v", got)
	}
}

// TestBoundedMapBounds verifies that many writers at a time do not make the map larger than
// its bound, and that a copy is not changed by later writes.
func TestBoundedMapBounds(t *testing.T) {
	var m boundedMap[int, int]
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				m.put(i*1000+j, j, 100)
				m.get(j)
			}
		})
	}
	wg.Wait()
	before := m.copy()
	if len(before) != 100 {
		t.Errorf("%d keys, want 100", len(before))
	}
	m.put(-1, 1, 101)
	if _, ok := before[-1]; ok || len(m.copy()) != 101 {
		t.Errorf("a copy has %d keys, the map %d", len(before), len(m.copy()))
	}
	for key, value := range before {
		if got, ok := m.get(key); !ok || got != value {
			t.Errorf("%d is %d, %v", key, got, ok)
		}
	}
}
