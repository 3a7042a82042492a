package inspect

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

// TestTreeOnce verifies that without those that are marked so, each thing is in the tree once.
func TestTreeOnce(t *testing.T) {
	full, again := map[string]int{}, map[string]int{}
	var visit func(list []*Node)
	visit = func(list []*Node) {
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
	root := t.TempDir()
	fakenode.WriteFiles(t, root, map[string]string{"cg/cgroup.controllers": "io\n"})
	sys := fakenode.Sysfs()
	h := Host{
		Cgroups: fakenode.OpenCgroups(t, filepath.Join(root, "cg")), Storage: fakenode.OpenStorage(t, sys, root, fakenode.Mounts),
		Sysfs: storage.NewSysfs(sys), Root: hostfs.Root(root), KubeletRoot: kubeletRoot, OrphanGrace: DefaultOrphanGrace,
	}
	r, err := h.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	visit(r.Devices)
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

// find returns the node with this kind and name, wherever it is.
func find(list []*Node, kind, name string) *Node {
	for _, n := range list {
		if n.Kind == kind && n.Name == name && !n.Again {
			return n
		}
		if found := find(n.Children, kind, name); found != nil {
			return found
		}
	}
	return nil
}

// TestDeviceNodes covers the fields of devices of each kind. A partition has no limits of its own.
func TestDeviceNodes(t *testing.T) {
	r, err := devicesHost(t, map[string]string{"cg/a/cgroup.controllers": "io\n", "cg/a/io.max": "", "cg/a/io.weight": "", "cg/io.cost.qos": "8:16 enable=1\n"}).Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	support := func(s *Support) string {
		if s == nil {
			return "-"
		}
		return s.OK.String()
	}
	var got []string
	for _, n := range []struct{ kind, name string }{
		{"disk", "sda"}, {"partition", "sda1"}, {"disk", "sdb"}, {"disk", "sdc"}, {"lvm", "dm-0"}, {"crypt", "dm-1"}, {"raid1", "md0"}, {"partition", "md0p1"}, {"loop", "loop0"},
	} {
		d := find(r.Devices, n.kind, n.name)
		if d == nil {
			t.Fatal("no", n)
		}
		got = append(got, fmt.Sprintf("%s %s %d %t %t below %v: max %s, weight %s, buffered %s",
			d.Name, d.Dev, d.Size>>20, d.ReadOnly, d.Rotational, d.Below, support(d.Max), support(d.Weight), support(d.Buffered)))
	}
	want := []string{
		"sda 8:0 2048 false true below []: max yes, weight no, buffered -",
		"sda1 8:1 512 false false below []: max -, weight -, buffered -",
		"sdb 8:16 2048 false false below []: max yes, weight yes, buffered -",
		"sdc 8:32 2048 true false below []: max yes, weight no, buffered -",
		"dm-0 253:0 2048 false false below [sda2 sdb]: max yes, weight no, buffered -",
		"dm-1 253:1 2048 false false below [dm-0]: max yes, weight no, buffered -",
		"md0 9:0 2048 false false below [sdc sdd]: max yes, weight no, buffered -",
		"md0p1 259:9 1 false false below []: max -, weight -, buffered -",
		"loop0 7:0 1 false false below []: max yes, weight no, buffered yes",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestFilesystemNodes covers the mountpoints of a filesystem, those of all of it first and those of
// volumes last, and why its disk is unknown.
func TestFilesystemNodes(t *testing.T) {
	const mounts = "10 1 253:2 / /var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pvc-1/mount rw - ext4 /dev/mapper/mpatha rw\n" +
		"11 1 253:2 /part /srv/part rw - ext4 /dev/mapper/mpatha rw\n12 1 253:2 / /srv/z rw - ext4 /dev/mapper/mpatha rw\n13 1 253:2 / /srv/y rw - ext4 /dev/mapper/mpatha rw\n" +
		"14 1 8:200 / /mnt/gone rw - vfat /dev/sdz rw\n"
	h := devicesHost(t, nil)
	h.Storage = fakenode.OpenStorage(t, fakenode.Sysfs(), string(h.Root), rootMount+mounts)
	r, err := h.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	multipath := find(r.Devices, "multipath", "dm-2")
	if multipath == nil || len(multipath.Children) != 1 {
		t.Fatalf("%+v", multipath)
	}
	want := []string{"/srv/z", "/srv/y", "/srv/part", "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pvc-1/mount"}
	if d := cmp.Diff(want, multipath.Children[0].Mountpoints); d != "" || multipath.Children[0].Reason != "" {
		t.Errorf("reason %q; -want +got:\n%s", multipath.Children[0].Reason, d)
	}
	gone := find(r.Devices, KindFilesystem, "vfat")
	if gone == nil || gone.Reason != "block device 8:200: no such disk" || gone.Buffered.OK != blkio.No {
		t.Errorf("on a removed disk: %+v", gone)
	}
}

// TestRamdisks verifies that the kernel's ramdisks are shown once they are used.
func TestRamdisks(t *testing.T) {
	for name, tt := range map[string]struct {
		mount string
		shown bool
	}{"unused": {"", false}, "used": {"20 1 1:0 / /mnt rw - ext2 /dev/ram0 rw\n", true}} {
		h := devicesHost(t, nil)
		h.Storage = fakenode.OpenStorage(t, fakenode.Sysfs(), string(h.Root), rootMount+tt.mount)
		r, err := h.Devices(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if shown := find(r.Devices, "disk", "ram0") != nil; shown != tt.shown {
			t.Errorf("%s: %t", name, shown)
		}
		if find(r.Devices, "disk", "sdf") == nil {
			t.Errorf("%s: an unused disk is not shown", name)
		}
	}
}

// TestPut verifies that a thing is on each known device below it, and a root if there is none.
func TestPut(t *testing.T) {
	a, b, self := blkio.Disk{Dev: blkio.Dev{Major: 8}}, blkio.Disk{Dev: blkio.Dev{Major: 9}}, blkio.Disk{Dev: blkio.Dev{Major: 10}}
	unknown := blkio.Disk{Dev: blkio.Dev{Major: 11}}
	for name, tt := range map[string]struct {
		below   []blkio.Disk
		onA     bool
		onB     bool
		isRoots bool
	}{
		"nothing below":             {isRoots: true},
		"one":                       {below: []blkio.Disk{a}, onA: true},
		"two":                       {below: []blkio.Disk{a, b}, onA: true, onB: true},
		"an unknown one":            {below: []blkio.Disk{unknown}, isRoots: true},
		"a known and an unknown":    {below: []blkio.Disk{unknown, b}, onB: true},
		"itself, by hostile sysfs":  {below: []blkio.Disk{self}, isRoots: true},
		"itself and another device": {below: []blkio.Disk{self, a}, onA: true},
	} {
		n, nodeA, nodeB := &Node{}, &Node{}, &Node{}
		tree := treeBuilder{nodes: map[blkio.Dev]*Node{a.Dev: nodeA, b.Dev: nodeB, self.Dev: n}}
		tree.put(n, tt.below)
		if slices.Contains(nodeA.Children, n) != tt.onA || slices.Contains(nodeB.Children, n) != tt.onB || slices.Contains(tree.roots, n) != tt.isRoots || n.Children != nil {
			t.Errorf("%s: on %v, %v, roots %v", name, nodeA.Children, nodeB.Children, tree.roots)
		}
	}
}

// TestFinish verifies that a device without a filesystem has cgroup writeback, by its own page cache.
func TestFinish(t *testing.T) {
	node := func(kind string) *Node { return &Node{Kind: kind} }
	for name, tt := range map[string]struct {
		kind     storage.DeviceKind
		children []*Node
		want     bool
	}{
		"unused":                     {storage.KindDisk, nil, true},
		"raw volumes":                {storage.KindLVM, []*Node{node(KindBlockVolume), node(KindBlockVolume)}, true},
		"a filesystem":               {storage.KindDisk, []*Node{node(KindFilesystem)}, false},
		"a raw volume and partition": {storage.KindDisk, []*Node{node(KindBlockVolume), node("partition")}, false},
		"a partition":                {storage.KindPartition, nil, false},
	} {
		n := &Node{Children: tt.children}
		(&treeBuilder{}).finish(&storage.BlockDevice{Kind: tt.kind}, n)
		if got := n.Buffered != nil && n.Buffered.OK == blkio.Yes; got != tt.want || n.Buffered != nil && !got {
			t.Errorf("%s: %+v", name, n.Buffered)
		}
	}
}

// TestVolumesOffFilesystems verifies that a raw block volume is on its disk, and so is a volume on an overlay,
// which is no filesystem of a device.
func TestVolumesOffFilesystems(t *testing.T) {
	h := devicesHost(t, map[string]string{podsDir + "u2/volumeDevices/kubernetes.io~csi/raw": "", "upper/x": "", "work/x": "", "lower/x": ""})
	const overlay = "30 1 0:90 / /var/lib/kubelet rw - overlay overlay rw,lowerdir=/lower,upperdir=/upper,workdir=/work\n"
	for name, tt := range map[string]struct {
		mounts string
		want   []string
	}{
		"a local filesystem": {rootMount, []string{"filesystem ext4", "blockVolume raw kubernetes.io/csi"}},
		"an overlay": {rootMount + overlay, []string{
			"filesystem ext4", "volume pvc-1 kubernetes.io/csi", "volume share kubernetes.io/nfs", "blockVolume raw kubernetes.io/csi",
			"volume scratch kubernetes.io/empty-dir", "volume token kubernetes.io/projected",
		}},
	} {
		h.Storage = fakenode.OpenStorage(t, fakenode.Sysfs(), string(h.Root), tt.mounts)
		r, err := h.Devices(t.Context())
		if err != nil || r.Lost != nil {
			t.Fatal(err, r.Lost)
		}
		if d := cmp.Diff(tt.want, children(r.Devices, "disk", "nvme0n1")); d != "" {
			t.Errorf("%s: -want +got:\n%s", name, d)
		}
		for _, n := range find(r.Devices, "disk", "nvme0n1").Children {
			if n.Buffered == nil || n.Buffered.OK != blkio.Yes {
				t.Errorf("%s: %s: %+v", name, n.Name, n.Buffered)
			}
		}
	}
}
