package plugin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"weak"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
)

// mounted is a Storage with a mount at some paths, and one below some.
type mounted struct {
	disks
	at, below map[string]blkio.Backing
	under     map[blkio.Dev]blkio.Dev
	fs        map[string]blkio.Dev // by mountpoint
}

func (m mounted) Resolve(_ context.Context, path string) blkio.Backing { return m.at[path] }

func (m mounted) Submounts(_ context.Context, path string) iter.Seq2[string, blkio.Backing] {
	return func(yield func(string, blkio.Backing) bool) {
		if b, ok := m.below[path]; ok {
			yield("in", b)
		}
	}
}

func (m mounted) Under(_ context.Context, disk blkio.Dev) []blkio.Disk {
	if d, ok := m.under[disk]; ok {
		return []blkio.Disk{{Dev: d}}
	}
	return nil
}

func (m mounted) FilesystemAt(path string) blkio.Dev { return m.fs[path] }

// TestFindUnsynced: what a container can write to on limited disks, each filesystem once;
// where a look fails there may be more.
func TestFindUnsynced(t *testing.T) {
	h, _ := tree(t, podCgroup)
	p := newPlugin(t, h)
	broken := blkio.Backing{Reason: "cannot be read", Err: errors.New("input/output error")}
	dm := blkio.Dev{Major: 253}
	p.storage = mounted{
		at:    map[string]blkio.Backing{"/a": onAt("/mnt/a", sda), "/b": onAt("/mnt/b", sdb), "/sub1": onAt("/sub1", sda), "/sub2": onAt("/sub2", sda), "/lv": onAt("/mnt/lv", dm), "/broken": broken},
		below: map[string]blkio.Backing{"/b": onAt("/mnt/b/in", sda), "/over": broken},
		under: map[blkio.Dev]blkio.Dev{dm: sda},
		fs:    map[string]blkio.Dev{"/sub1": {Major: 8, Minor: 1}, "/sub2": {Major: 8, Minor: 1}},
	}
	root := volume{path: "/", disk: sda}
	facts := policy.Container{
		Rootfs: onAt("/", sda),
		Mounts: []policy.Mount{
			{Backing: onAt("/data", sdb)},
			{Backing: onAt("/ro", sda), ReadOnly: true, Below: []policy.Below{{Backing: onAt("/ro/rw", sda)}}},
			{Backing: onAt("/", sda), Injected: true},
		},
	}
	readWrite := volume{path: "/ro/rw", disk: sda}
	for name, tt := range map[string]struct {
		beyond []inventory.UnresolvedMount
		want   []volume
		more   bool
	}{
		"known":          {nil, nil, false},
		"found":          {[]inventory.UnresolvedMount{{Source: "/a", Self: true, Below: true}, {Source: "/b", Self: true, Below: true}}, []volume{{path: "/mnt/a", disk: sda}, {path: "/mnt/b/in", disk: sda}}, false},
		"only below":     {[]inventory.UnresolvedMount{{Source: "/a", Self: false, Below: true}}, nil, false},
		"twice":          {[]inventory.UnresolvedMount{{Source: "/a", Self: true, Below: false}, {Source: "/a", Self: true, Below: false}}, []volume{{path: "/mnt/a", disk: sda}}, false},
		"one filesystem": {[]inventory.UnresolvedMount{{Source: "/sub1", Self: true, Below: false}, {Source: "/sub2", Self: true, Below: false}}, []volume{{"/sub1", sda, blkio.Dev{Major: 8, Minor: 1}}}, false},
		"logical volume": {[]inventory.UnresolvedMount{{Source: "/lv", Self: true, Below: false}}, []volume{{path: "/mnt/lv", disk: dm}}, false},
		"fails":          {[]inventory.UnresolvedMount{{Source: "/a", Self: true, Below: true}, {Source: "/broken", Self: true, Below: false}}, nil, true},
		"fails below it": {[]inventory.UnresolvedMount{{Source: "/over", Self: false, Below: true}}, nil, true},
	} {
		c := container{
			identity: identity{pod: newPod(drainedSandbox)},
			disks:    inventory.Container{Facts: facts, Unresolved: tt.beyond},
			exit:     exitState{plan: exitPlan{limited: map[blkio.Dev]bool{sda: true}}},
		}
		got := p.findUnsynced(t.Context(), &c)
		if want := append([]volume{root, readWrite}, tt.want...); !slices.Equal(got.volumes, want) || got.more != tt.more {
			t.Errorf("%s: %v, want %v, more: %v", name, got.volumes, want, got.more)
		}
	}
	unlimited := container{identity: identity{pod: newPod(drainedSandbox)}, disks: inventory.Container{Facts: facts, Unresolved: []inventory.UnresolvedMount{{Source: "/a", Self: true, Below: true}}}}
	if got := p.findUnsynced(t.Context(), &unlimited); len(got.volumes) > 0 || got.more {
		t.Errorf("without a limit: %+v", got)
	}
}

// TestUnsyncedAboveLimit: a limit on a disk throttles the filesystem of a logical volume
// on its partition, by sysfs as it is.
func TestUnsyncedAboveLimit(t *testing.T) {
	const lv = "/dev/mapper/vg-data"
	link := func(to string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(to), Mode: os.ModeSymlink} }
	sys := fstest.MapFS{
		"devices/pci/block/sda/dev":              {Data: []byte("8:0\n")},
		"devices/pci/block/sda/sda2/dev":         {Data: []byte("8:2\n")},
		"devices/pci/block/sda/sda2/partition":   {Data: []byte("2\n")},
		"devices/virtual/block/dm-0/dev":         {Data: []byte("253:0\n")},
		"devices/virtual/block/dm-0/dm/name":     {Data: []byte("vg-data\n")},
		"devices/virtual/block/dm-0/slaves/sda2": link("../../../../pci/block/sda/sda2"),
		"block/sda":                              link("../devices/pci/block/sda"),
		"block/dm-0":                             link("../devices/virtual/block/dm-0"),
		"dev/block/8:0":                          link("../../devices/pci/block/sda"),
		"dev/block/8:2":                          link("../../devices/pci/block/sda/sda2"),
		"dev/block/253:0":                        link("../../devices/virtual/block/dm-0"),
	}
	table := filepath.Join(t.TempDir(), "mountinfo")
	write(t, table, "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 253:0 / /mnt/lv rw - ext4 "+lv+" rw\n")
	storage, err := storage.Open(storage.Config{Sys: sys, Mountinfo: table, HostRoot: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer storage.Close()
	h, _ := tree(t, podCgroup)
	p := newPlugin(t, h)
	p.storage = storage
	c := container{
		identity: identity{pod: newPod(drainedSandbox)},
		disks:    inventory.Container{Facts: policy.Container{Rootfs: storage.Resolve(t.Context(), "/mnt/lv")}},
		exit:     exitState{plan: exitPlan{limited: map[blkio.Dev]bool{sda: true}}},
	}
	want := []volume{{"/mnt/lv", blkio.Dev{Major: 253}, blkio.Dev{Major: 253}}}
	if got := p.findUnsynced(t.Context(), &c); got.more || !slices.Equal(got.volumes, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestUnsyncedOfManyMounts: subPaths of one volume are as many mounts of one filesystem,
// which is synced once.
func TestUnsyncedOfManyMounts(t *testing.T) {
	h, _ := tree(t, podCgroup)
	p := newPlugin(t, h)
	storage := mounted{at: map[string]blkio.Backing{}, fs: map[string]blkio.Dev{}}
	p.storage = &storage
	c := container{identity: identity{pod: newPod(drainedSandbox)}, exit: exitState{plan: exitPlan{limited: map[blkio.Dev]bool{sda: true}}}}
	for i := range 4000 {
		at := fmt.Sprintf("/var/lib/kubelet/pods/u1/volume-subpaths/v/c/%d", i)
		storage.at[at], storage.fs[at] = onAt(at, sda), blkio.Dev{Major: 8, Minor: 1}
		c.disks.Unresolved = append(c.disks.Unresolved, inventory.UnresolvedMount{Source: at, Self: true, Below: false})
	}
	if got := p.findUnsynced(t.Context(), &c); len(got.volumes) != 1 || got.more {
		t.Errorf("%d syncs, more: %t", len(got.volumes), got.more)
	}
}

// TestSlowSyncKeepsLittle: a sync can take hours. Neither a pod that has been removed
// nor its container is kept for it.
func TestSlowSyncKeepsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := tree(t, podCgroup, cgroupOf("a"))
		p := newPlugin(t, h)
		p.exits.tidying = make(chan struct{}, 1)
		hung := make(chan struct{})
		p.exits.syncs.do = func(context.Context, string) error { <-hung; return nil }
		gone := func() weak.Pointer[pod] {
			sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
			if err := p.start(t.Context(), sb, ctr("a"), true); err != nil {
				t.Fatal(err)
			}
			c, _ := p.ended(cgroupOf("a"))
			p.writeOut(t.Context(), &c, unsynced{volumes: []volume{{path: "/", disk: rootDisk.Dev}}})
			p.stopped("sb1", c.id)
			p.removed("sb1", c.id)
			p.removedPod("sb1")
			return weak.Make(c.pod)
		}()
		synctest.Wait()
		p.takeDirty()
		runtime.GC()
		runtime.GC()
		if gone.Value() != nil {
			t.Error("the pod is kept")
		}
		close(hung)
		sleep(2 * syncPatience)
	})
}

// TestCleanBehindSlowSync: another pod's slow data keeps a sync under way for hours. The
// limits of a pod without anything dirty go nevertheless, and not before that.
func TestCleanBehindSlowSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, dir := tree(t, podCgroup)
		d := &drainedPod{t, newPlugin(t, h)}
		d.p.exits.tidying = make(chan struct{}, 1)
		stat := filepath.Join(dir, podCgroup, "memory.stat")
		write(t, stat, "anon 8192\nfile_dirty 4096\nfile_writeback 0\n")
		hung := make(chan struct{})
		d.p.exits.syncs.do = func(context.Context, string) error { <-hung; return nil }
		a := d.run("a")
		d.end(a)
		d.p.writeOut(t.Context(), a, unsynced{volumes: []volume{{path: "/", disk: rootDisk.Dev}}})
		passes := func() {
			for range 3 {
				d.p.findClean(t.Context(), d.p.takeAll())
			}
			synctest.Wait()
		}
		sleep(syncPatience / 2)
		write(t, stat, "anon 8192\nfile_dirty 0\nfile_writeback 0\n")
		passes()
		d.want(9<<20, blkio.Unset) // the sync has its minute
		sleep(syncPatience)
		write(t, stat, "anon 8192\nfile_dirty 0\nfile_writeback 4096\n")
		passes()
		d.want(9<<20, blkio.Unset)
		write(t, stat, "anon 8192\nfile_dirty 0\nfile_writeback 0\n")
		passes()
		d.want(blkio.Unset, blkio.Unset)
		close(hung)
		sleep(maxRest)
	})
}
