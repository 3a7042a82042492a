package inventory

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestAccrue: another look only adds.
func TestAccrue(t *testing.T) {
	a, b, c := blkio.Disk{Dev: blkio.Dev{Major: 8}}, blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 16}}, blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 32}}
	of := func(d ...blkio.Disk) blkio.Backing { return blkio.Backing{FSType: "ext4", Disks: d} }
	gone := blkio.Backing{Reason: "no such disk", Missing: true}
	before := policy.Container{Rootfs: of(a), Mounts: []policy.Mount{
		{Destination: "/data", Backing: of(a), Below: []policy.Below{{Path: "/data/old", Backing: of(b)}}},
		{Destination: "/raw", Backing: of(c)},
	}}
	now := policy.Container{Rootfs: of(b), Mounts: []policy.Mount{
		{Destination: "/data", Backing: of(c), Below: []policy.Below{{Path: "/data/new", Backing: of(b)}}},
		{Destination: "/raw", Backing: gone},
	}}
	stays := history{paths: []string{"/data/new", "/data/old/file"}, gone: func(blkio.Dev) bool { return false }}
	stays.accrue(&now, &before)
	for path, want := range map[string][]blkio.Disk{
		"/data": {a, c}, "/data/x": {a, c}, "/data/old": {b}, "/data/new": {a, b},
	} {
		if got := now.Mounts[0].BackingOf(path).Disks; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	if got := now.Mounts[1].Backing; !slices.Equal(got.Disks, []blkio.Disk{c}) || !got.Missing || got.Reason != "" {
		t.Errorf("a disk that is away: %+v", got)
	}
	if got := now.Rootfs.Disks; !slices.Equal(got, []blkio.Disk{a, b}) {
		t.Errorf("rootfs: %v", got)
	}
	first := policy.Container{Mounts: []policy.Mount{{Backing: of(a)}}}
	stays.accrue(&first, &policy.Container{})
	if !slices.Equal(first.Mounts[0].Backing.Disks, []blkio.Disk{a}) {
		t.Errorf("the first look: %+v", first)
	}
}

// onAt is a filesystem on a disk, by its mountpoint.
func onAt(mountpoint string, dev blkio.Dev) blkio.Backing {
	return blkio.Backing{Mountpoint: mountpoint, FSType: "ext4", Disks: []blkio.Disk{{Dev: dev}}}
}

// TestAccrueForgetsMounts: of thousands of mounts that came and went in a container the
// disks are kept, not the mounts; and of those only what the node still has.
func TestAccrueForgetsMounts(t *testing.T) {
	sda, sdb, far := blkio.Dev{Major: 8}, blkio.Dev{Major: 8, Minor: 16}, blkio.Dev{Major: 253, Minor: 7}
	p := history{gone: func(d blkio.Dev) bool { return d == far }}
	facts := policy.Container{Mounts: []policy.Mount{{Destination: "/kubelet", Backing: onAt("/", sda)}}}
	for i := range 3000 {
		now := policy.Container{Mounts: []policy.Mount{{Destination: "/kubelet", Backing: onAt("/", sda)}}}
		path := fmt.Sprintf("/kubelet/pods/%d/volumes/v", i)
		now.Mounts[0].Below = []policy.Below{{Path: path, Backing: onAt("/var/lib"+path, []blkio.Dev{sdb, far, {Major: 9}}[i%3])}}
		p.accrue(&now, &facts)
		facts = now
	}
	below := facts.Mounts[0].Below
	if len(below) > 2 {
		t.Fatalf("%d mounts are kept", len(below))
	}
	var disks []blkio.Dev
	for _, b := range below {
		for _, d := range b.Backing.Disks {
			disks = append(disks, d.Dev)
		}
		if !strings.HasSuffix(b.Path, "/2999/volumes/v") && b.Backing.Mountpoint != "" {
			t.Errorf("%s is to be synced at %s", b.Path, b.Backing.Mountpoint)
		}
	}
	slices.SortFunc(disks, blkio.Dev.Compare)
	if want := []blkio.Dev{sda, sdb, {Major: 9}}; !slices.Equal(slices.Compact(disks), want) {
		t.Errorf("disks %v, want %v", disks, want)
	}
}

func TestHasPathIn(t *testing.T) {
	paths := []string{"/a", "/a b/c", "/a/b", "/data-x", "/data.y/z", "/data/in", "/z"}
	got := map[string]bool{}
	want := map[string]bool{"/": true, "/a": true, "/a/b": true, "/a b": true, "/data": true, "/data/": true, "/data/in/x": false, "/b": false, "/zz": false, "/a/bc": false}
	for dir := range want {
		got[dir] = hasPathIn(paths, dir)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if hasPathIn(nil, "/") {
		t.Error("no path is in /")
	}
}
