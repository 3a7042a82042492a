package inventory

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestAccrue verifies that another Find only adds disks.
func TestAccrue(t *testing.T) {
	a, b, c := blkio.Disk{Dev: blkio.Dev{Major: 8}}, blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 16}}, blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 32}}
	of := func(d ...blkio.Disk) blkio.Backing { return blkio.Backing{FSType: "ext4", Disks: d} }
	gone := blkio.Backing{Reason: "no such disk", Missing: true}
	before := policy.Container{Rootfs: of(a), Mounts: []policy.Mount{
		{Destination: "/data", Backing: new(of(a)), Below: []policy.Below{{Path: "/data/old", Backing: new(of(b))}}},
		{Destination: "/raw", Backing: new(of(c))},
	}}
	now := policy.Container{Rootfs: of(b), Mounts: []policy.Mount{
		{Destination: "/data", Backing: new(of(c)), Below: []policy.Below{{Path: "/data/new", Backing: new(of(b))}}},
		{Destination: "/raw", Backing: &gone},
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
	first := policy.Container{Mounts: []policy.Mount{{Backing: new(of(a))}}}
	stays.accrue(&first, &policy.Container{})
	if !slices.Equal(first.Mounts[0].Backing.Disks, []blkio.Disk{a}) {
		t.Errorf("after the first resolution: %+v", first)
	}
}

// onAt is a filesystem on a disk, by its mountpoint.
func onAt(mountpoint string, dev blkio.Dev) blkio.Backing {
	return blkio.Backing{Mountpoint: mountpoint, FSType: "ext4", Disks: []blkio.Disk{{Dev: dev}}}
}

// TestAccrueForgetsMounts verifies that the disks of thousands of former mounts of a container are kept, not
// the mounts. Only disks that the node still has are kept.
func TestAccrueForgetsMounts(t *testing.T) {
	sda, sdb, far := blkio.Dev{Major: 8}, blkio.Dev{Major: 8, Minor: 16}, blkio.Dev{Major: 253, Minor: 7}
	p := history{gone: func(d blkio.Dev) bool { return d == far }}
	facts := policy.Container{Mounts: []policy.Mount{{Destination: "/kubelet", Backing: new(onAt("/", sda))}}}
	for i := range 3000 {
		now := policy.Container{Mounts: []policy.Mount{{Destination: "/kubelet", Backing: new(onAt("/", sda))}}}
		path := fmt.Sprintf("/kubelet/pods/%d/volumes/v", i)
		now.Mounts[0].Below = []policy.Below{{Path: path, Backing: new(onAt("/var/lib"+path, []blkio.Dev{sdb, far, {Major: 9}}[i%3]))}}
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

// TestBoth verifies that the result has the disks of both, as long as the node has them, and the other current
// facts.
func TestBoth(t *testing.T) {
	a, b, far := blkio.Disk{Dev: blkio.Dev{Major: 8}}, blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 16}}, blkio.Disk{Dev: blkio.Dev{Major: 253}}
	early, late := &blkio.Warning{Kind: blkio.NoCgroupWriteback}, &blkio.Warning{Kind: blkio.StallsFsync}
	h := history{gone: func(d blkio.Dev) bool { return d == far.Dev }}
	for _, tt := range []struct {
		name              string
		now, before, want blkio.Backing
	}{
		{"no disks", blkio.Backing{Reason: "tmpfs is memory, not a disk"}, blkio.Backing{Reason: "cannot be read", Err: errAnswer}, blkio.Backing{Reason: "tmpfs is memory, not a disk"}},
		{"the first", blkio.Backing{FSType: "xfs", Disks: []blkio.Disk{a}}, blkio.Backing{Reason: "cannot be read", Err: errAnswer}, blkio.Backing{FSType: "xfs", Disks: []blkio.Disk{a}}},
		{
			"not found this time",
			blkio.Backing{Reason: "cannot be read", Err: errAnswer},
			blkio.Backing{FSType: "xfs", Disks: []blkio.Disk{a}},
			blkio.Backing{FSType: "xfs", Disks: []blkio.Disk{a}, Err: errAnswer},
		},
		{
			"removed",
			blkio.Backing{Reason: "no such disk", Missing: true},
			blkio.Backing{Disks: []blkio.Disk{a}, Err: errAnswer},
			blkio.Backing{Disks: []blkio.Disk{a}, Missing: true},
		},
		{
			"removed for long",
			blkio.Backing{Reason: "not mounted"},
			blkio.Backing{Disks: []blkio.Disk{a}, Missing: true},
			blkio.Backing{Disks: []blkio.Disk{a}, Missing: true},
		},
		{
			"more disks",
			blkio.Backing{FSType: "ext4", Disks: []blkio.Disk{b}, Warning: late},
			blkio.Backing{FSType: "xfs", Disks: []blkio.Disk{a, b, far}, Warning: early},
			blkio.Backing{FSType: "ext4", Disks: []blkio.Disk{a, b}, Warning: late},
		},
		{"a warning from before", blkio.Backing{Disks: []blkio.Disk{b}}, blkio.Backing{Disks: []blkio.Disk{b}, Warning: early}, blkio.Backing{Disks: []blkio.Disk{b}, Warning: early}},
	} {
		shared := append(make([]blkio.Disk, 0, 8), tt.now.Disks...) // others have this list as well
		tt.now.Disks = shared
		if d := cmp.Diff(tt.want, *h.both(&tt.now, &tt.before), cmpopts.EquateErrors(), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, d)
		}
		if n := len(shared); shared[:n+1][n] != (blkio.Disk{}) {
			t.Errorf("%s: the shared list became %v", tt.name, shared[:n+1])
		}
	}
}

// TestAddDisks verifies that the disks of mounts that came and went are one entry, where no other one has them.
func TestAddDisks(t *testing.T) {
	a, b, c := blkio.Dev{Major: 8}, blkio.Dev{Major: 8, Minor: 16}, blkio.Dev{Major: 8, Minor: 32}
	h := history{gone: func(blkio.Dev) bool { return false }}
	at := func(path string, dev ...blkio.Dev) policy.Below {
		b := blkio.Backing{FSType: "ext4", Mountpoint: "/host" + path}
		for _, d := range dev {
			b.Disks = append(b.Disks, blkio.Disk{Dev: d})
		}
		return policy.Below{Path: path, Backing: &b}
	}
	for _, tt := range []struct {
		name     string
		readOnly bool
		now, old []policy.Below
		want     []string
	}{
		{"the volume's own", false, nil, []policy.Below{at("/d/x", a)}, nil},
		{"the volume's own, read-only", true, nil, []policy.Below{at("/d/x", a)}, []string{"/d/x ext4 [8:0] at "}},
		{"that of another mount", false, []policy.Below{at("/d/y", b)}, []policy.Below{at("/d/x", b)}, []string{"/d/y ext4 [8:0 8:16] at /host/d/y"}},
		{"several", false, nil, []policy.Below{at("/d/x", c, b), at("/d/y", b), at("/d/z", blkio.Dev{Major: 7})}, []string{"/d/x ext4 [7:0 8:16 8:32] at "}},
		{"a new mount in its place", false, []policy.Below{at("/d/x", b)}, []policy.Below{at("/d/x", c)}, []string{"/d/x ext4 [8:16 8:32] at /host/d/x"}},
	} {
		m := policy.Mount{Destination: "/d", ReadOnly: tt.readOnly, Backing: new(onAt("/host/d", a)), Below: tt.now}
		h.accrueMount(&m, &policy.Mount{Destination: "/d", Backing: new(onAt("/host/d", a)), Below: tt.old})
		var got []string
		for _, b := range m.Below {
			var disks []blkio.Dev
			for _, d := range b.Backing.Disks {
				disks = append(disks, d.Dev)
			}
			got = append(got, fmt.Sprintf("%s %s %v at %s", b.Path, b.Backing.FSType, disks, b.Backing.Mountpoint))
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, d)
		}
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
