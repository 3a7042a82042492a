package handover

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
)

// mounted is a Storage with a mount at some paths, and one below some.
type mounted struct {
	noDisks
	at, below map[string]blkio.Backing
	under     map[blkio.Dev]blkio.Dev
	fs        map[string]blkio.Dev // by mountpoint
}

func (m mounted) Resolve(_ context.Context, path string) *blkio.Backing { return new(m.at[path]) }

func (m mounted) Submounts(_ context.Context, path string) iter.Seq2[string, *blkio.Backing] {
	return func(yield func(string, *blkio.Backing) bool) {
		if b, ok := m.below[path]; ok {
			yield("in", &b)
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

func (m mounted) Locate(_ context.Context, path string) (string, bool) { return path, true }

// noDisks is a Storage that knows nothing about stacks of disks.
type noDisks struct{}

func (noDisks) Refresh(context.Context) error                   { return nil }
func (noDisks) Physical(blkio.Dev) ([]blkio.Disk, error)        { return nil, nil }
func (noDisks) Device(blkio.Dev) blkio.Backing                  { return blkio.Backing{} }
func (noDisks) SwapDisks(context.Context) ([]blkio.Disk, error) { return nil, nil }
func (noDisks) MountedDisks() map[blkio.Dev]bool                { return nil }

// onAt returns a filesystem by its mountpoint.
func onAt(where string, disk blkio.Dev) blkio.Backing {
	return blkio.Backing{Mountpoint: where, Disks: []blkio.Disk{{Dev: disk}}}
}

// find returns the filesystems to sync for a container with these disks.
func find(t *testing.T, s Storage, disks *inventory.Container, limited map[blkio.Dev]bool) Unsynced {
	t.Helper()
	log, _ := logtest.NewNullLogger()
	w := Writeout{Storage: s, Calls: &bounded.Calls{}}
	return w.Find(t.Context(), &Leftovers{ID: "a", Limited: limited, Disks: disks, Log: log})
}

// containerWith returns a container with these facts, and with mounts that were not resolved.
func containerWith(facts policy.Container, unresolved ...inventory.UnresolvedMount) *inventory.Container {
	spec := &inventory.Spec{Mounts: make([]inventory.Mount, len(facts.Mounts))} // those of the facts are no binds here
	facts.Mounts = slices.Clone(facts.Mounts)
	for _, u := range unresolved {
		option := "bind"
		if u.Below {
			option = "rbind"
		}
		spec.Mounts = append(spec.Mounts, inventory.Mount{Type: "bind", Source: u.Source, Options: inventory.ParseOptions(option)})
		facts.Mounts = append(facts.Mounts, policy.Mount{Backing: &blkio.Backing{Unresolved: u.Self}})
	}
	c := inventory.NewContainer(spec)
	c.Facts = facts
	return &c
}

// TestFindUnsynced verifies that the result has each filesystem on a limited disk that a container can write
// to, once. After an error there may be more.
func TestFindUnsynced(t *testing.T) {
	broken := blkio.Backing{Reason: "cannot be read", Err: errors.New("input/output error")}
	dm := blkio.Dev{Major: 253}
	storage := mounted{
		at:    map[string]blkio.Backing{"/a": onAt("/mnt/a", sda), "/b": onAt("/mnt/b", sdb), "/sub1": onAt("/sub1", sda), "/sub2": onAt("/sub2", sda), "/lv": onAt("/mnt/lv", dm), "/broken": broken},
		below: map[string]blkio.Backing{"/b": onAt("/mnt/b/in", sda), "/over": broken},
		under: map[blkio.Dev]blkio.Dev{dm: sda},
		fs:    map[string]blkio.Dev{"/sub1": {Major: 8, Minor: 1}, "/sub2": {Major: 8, Minor: 1}},
	}
	root := Volume{Path: "/", Disk: sda}
	facts := policy.Container{
		Rootfs: onAt("/", sda),
		Mounts: []policy.Mount{
			{Backing: new(onAt("/data", sdb))},
			{Backing: new(onAt("/ro", sda)), ReadOnly: true, Below: []policy.Below{{Backing: new(onAt("/ro/rw", sda))}}},
			{Backing: new(onAt("/", sda)), Injected: true},
		},
	}
	readWrite := Volume{Path: "/ro/rw", Disk: sda}
	for name, tt := range map[string]struct {
		beyond []inventory.UnresolvedMount
		want   []Volume
		more   bool
	}{
		"known":          {nil, nil, false},
		"found":          {[]inventory.UnresolvedMount{{Source: "/a", Self: true, Below: true}, {Source: "/b", Self: true, Below: true}}, []Volume{{Path: "/mnt/a", Disk: sda}, {Path: "/mnt/b/in", Disk: sda}}, false},
		"only below":     {[]inventory.UnresolvedMount{{Source: "/a", Self: false, Below: true}}, nil, false},
		"twice":          {[]inventory.UnresolvedMount{{Source: "/a", Self: true, Below: false}, {Source: "/a", Self: true, Below: false}}, []Volume{{Path: "/mnt/a", Disk: sda}}, false},
		"one filesystem": {[]inventory.UnresolvedMount{{Source: "/sub1", Self: true, Below: false}, {Source: "/sub2", Self: true, Below: false}}, []Volume{{"/sub1", sda, blkio.Dev{Major: 8, Minor: 1}}}, false},
		"logical volume": {[]inventory.UnresolvedMount{{Source: "/lv", Self: true, Below: false}}, []Volume{{Path: "/mnt/lv", Disk: dm}}, false},
		"fails":          {[]inventory.UnresolvedMount{{Source: "/a", Self: true, Below: true}, {Source: "/broken", Self: true, Below: false}}, nil, true},
		"fails below it": {[]inventory.UnresolvedMount{{Source: "/over", Self: false, Below: true}}, nil, true},
	} {
		got := find(t, storage, containerWith(facts, tt.beyond...), map[blkio.Dev]bool{sda: true})
		if want := append([]Volume{root, readWrite}, tt.want...); !slices.Equal(got.Volumes, want) || got.More != tt.more {
			t.Errorf("%s: %v, want %v, more: %v", name, got.Volumes, want, got.More)
		}
	}
	unlimited := containerWith(facts, inventory.UnresolvedMount{Source: "/a", Self: true, Below: true})
	if got := find(t, storage, unlimited, nil); len(got.Volumes) > 0 || got.More {
		t.Errorf("without a limit: %+v", got)
	}
}

// TestUnsyncedAboveLimit verifies that a limit on a disk counts for the filesystem of a logical volume on its
// partition, with a real sysfs.
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
	mounts := []byte("1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 253:0 / /mnt/lv rw - ext4 " + lv + " rw\n")
	if err := os.WriteFile(table, mounts, 0o644); err != nil {
		t.Fatal(err)
	}
	storage, err := storage.Open(storage.Config{Sys: sys, Mountinfo: table, HostRoot: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer storage.Close()
	disks := &inventory.Container{Facts: policy.Container{Rootfs: *storage.Resolve(t.Context(), "/mnt/lv")}}
	want := []Volume{{"/mnt/lv", blkio.Dev{Major: 253}, blkio.Dev{Major: 253}}}
	if got := find(t, storage, disks, map[blkio.Dev]bool{sda: true}); got.More || !slices.Equal(got.Volumes, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestUnsyncedOfManyMounts verifies that a filesystem that is mounted many times, by subPaths of one volume, is
// synced once.
func TestUnsyncedOfManyMounts(t *testing.T) {
	storage := mounted{at: map[string]blkio.Backing{}, fs: map[string]blkio.Dev{}}
	var unresolved []inventory.UnresolvedMount
	for i := range 4000 {
		at := fmt.Sprintf("/var/lib/kubelet/pods/u1/volume-subpaths/v/c/%d", i)
		storage.at[at], storage.fs[at] = onAt(at, sda), blkio.Dev{Major: 8, Minor: 1}
		unresolved = append(unresolved, inventory.UnresolvedMount{Source: at, Self: true, Below: false})
	}
	if got := find(t, storage, containerWith(policy.Container{}, unresolved...), map[blkio.Dev]bool{sda: true}); len(got.Volumes) != 1 || got.More {
		t.Errorf("%d syncs, more: %t", len(got.Volumes), got.More)
	}
}
