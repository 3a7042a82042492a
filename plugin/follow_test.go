package plugin

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// changing is a Storage with one mount below each volume, or none.
type changing struct {
	disks
	mu    sync.Mutex
	below *blkio.Disk
	looks int
}

func (s *changing) Submounts(context.Context, string) iter.Seq2[string, blkio.Backing] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	below := s.below
	return func(yield func(string, blkio.Backing) bool) {
		if below != nil {
			yield("sub", on(*below))
		}
	}
}

func (s *changing) mount(d *blkio.Disk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.below = d
}

func (s *changing) seen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks
}

// TestMountsChanged: what is mounted into a running container is limited, and stays so
// when it is unmounted, since the container may have it still; a container that no
// mount comes into is left alone.
func TestMountsChanged(t *testing.T) {
	late := blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 48}, Name: "sdd"}
	for _, tt := range []struct {
		propagation string
		follows     bool
	}{{"rslave", true}, {"rshared", true}, {"rprivate", false}} {
		t.Run(tt.propagation, func(t *testing.T) {
			h, _ := tree(t, podCgroup, cgroupOf("a"))
			p := newPlugin(t, h)
			storage := &changing{disks: disks{twoDisks}}
			p.storage = storage
			sb := sandbox(map[string]string{limitsKey + "containers": "* wbps=1Mi"})
			if err := p.start(t.Context(), sb, ctr("a", bind("/mnt/data", "/data", "rbind", tt.propagation)), true); err != nil {
				t.Fatal(err)
			}
			limited := func() []blkio.Dev {
				p.MountsChanged()
				for _, g := range p.takeDirty() {
					p.reconcileGroup(t.Context(), g)
				}
				for _, pod := range p.pods {
					return slices.SortedFunc(maps.Keys(p.planFor(pod.group).Containers[0].Want.DevLimits()), blkio.Dev.Compare)
				}
				return nil
			}
			two := slices.SortedFunc(slices.Values([]blkio.Dev{rootDisk.Dev, dataDisk.Dev}), blkio.Dev.Compare)
			three := slices.SortedFunc(slices.Values(append([]blkio.Dev{late.Dev}, two...)), blkio.Dev.Compare)
			before := storage.seen()
			if got := limited(); !slices.Equal(got, two) {
				t.Errorf("limited at first: %v, want %v", got, two)
			}
			storage.mount(&late)
			want := two
			if tt.follows {
				want = three
			}
			if got := limited(); !slices.Equal(got, want) {
				t.Errorf("limited with the mount: %v, want %v", got, want)
			}
			storage.mount(nil)
			if got := limited(); !slices.Equal(got, want) {
				t.Errorf("limited without it: %v, want %v", got, want)
			}
			if !tt.follows && storage.seen() != before {
				t.Error("it was looked into")
			}
		})
	}
}

// TestChangeDuringLook: what changes while a container is looked into is not missed.
func TestChangeDuringLook(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	p := newPlugin(t, h)
	storage := &changing{disks: disks{twoDisks}}
	p.storage = storage
	sb := sandbox(map[string]string{limitsKey + "containers": "* wbps=1Mi"})
	if err := p.start(t.Context(), sb, ctr("a", bind("/mnt/data", "/data", "rbind", "rslave")), true); err != nil {
		t.Fatal(err)
	}
	c := p.pods["sb1"].containers["id-a"]
	p.MountsChanged()
	during := sync.OnceFunc(p.MountsChanged)
	storage.resolve = func(path string) blkio.Backing {
		during()
		return twoDisks(path)
	}
	if err := p.settle(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if c.disks.IsResolved() {
		t.Error("it will not be looked into again")
	}
	if err := p.settle(t.Context(), c); err != nil || !c.disks.IsResolved() {
		t.Errorf("it is looked into for ever (%v)", err)
	}
}

// TestLayerStays: a runtime that was restarted with another snapshotter does not move
// the writable layers of containers that run.
func TestLayerStays(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	p := newPlugin(t, h)
	p.storage = &changing{disks: disks{twoDisks}}
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi; /data/sub wbps=2Mi"})
	if err := p.start(t.Context(), sb, ctr("a", bind("/mnt/data", "/data", "rbind", "rslave")), true); err != nil {
		t.Fatal(err)
	}
	p.layers.current.Store(&placed{Layers: inventory.Layers{Default: inventory.Layer{Dir: "/mnt/data/layers"}}, registration: 1})
	p.MountsChanged()
	c := p.pods["sb1"].containers["id-a"]
	if err := p.settle(t.Context(), c); err != nil || c.decision.err != nil {
		t.Fatal(err, c.decision.err)
	}
	if got := c.disks.Facts.Rootfs.Disks; !slices.Equal(got, []blkio.Disk{rootDisk}) {
		t.Errorf("its writable layer is on %v", got)
	}
}

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

// TestStartLooksAgain: what is mounted between a container's creation and its start is
// limited.
func TestStartLooksAgain(t *testing.T) {
	late := blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 48}, Name: "sdd"}
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	p := newPlugin(t, h)
	storage := &changing{disks: disks{twoDisks}}
	p.storage = storage
	sb := sandbox(map[string]string{limitsKey + "containers": "* wbps=1Mi"})
	c := ctr("a", bind("/mnt/data", "/data", "rbind", "rslave"))
	if _, err := p.create(t.Context(), sb, c, false); err != nil {
		t.Fatal(err)
	}
	storage.mount(&late)
	if err := p.start(t.Context(), sb, c, true); err != nil {
		t.Fatal(err)
	}
	want := p.planFor(p.pods["sb1"].group).Containers[0].Want.DevLimits()
	if _, ok := want[late.Dev]; !ok {
		t.Errorf("limited are %v", want)
	}
}

func TestGrows(t *testing.T) {
	for fstype, want := range map[string]bool{"btrfs": true, "bcachefs": true, "ext4": false, "": false} {
		for name, facts := range map[string]policy.Container{
			"rootfs": {Rootfs: blkio.Backing{FSType: fstype}},
			"mount":  {Mounts: []policy.Mount{{Backing: blkio.Backing{FSType: fstype}}}},
			"below":  {Mounts: []policy.Mount{{Below: []policy.Below{{Backing: blkio.Backing{FSType: fstype}}}}}},
		} {
			if got := grows(&facts); got != want {
				t.Errorf("%s, %s: %t", fstype, name, got)
			}
		}
	}
	if !grows(&policy.Container{Mounts: []policy.Mount{{Backing: blkio.Backing{Missing: true}}}}) {
		t.Error("a device that is away may come back")
	}
}

func TestPropagates(t *testing.T) {
	for _, tt := range []struct {
		value   string
		options []string
		want    bool
	}{
		{"* wbps=1Mi", []string{"rbind", "rslave"}, true},
		{"* wbps=1Mi", []string{"rbind", "rshared"}, true},
		{"* wbps=1Mi", []string{"rbind", "rprivate"}, false},
		{"/data/sub wbps=1Mi", []string{"rbind", "rslave"}, true},
		{"/data wbps=1Mi", []string{"rbind", "rslave"}, true}, // the host may mount over the source
		{"@data wbps=1Mi", []string{"rbind", "rslave"}, true},
		{"/database wbps=1Mi", []string{"rbind", "rslave"}, false},
		{"rootfs wbps=1Mi", []string{"rbind", "rslave"}, false},
	} {
		req := annotation.Parse(map[string]string{limitsKey + "containers": tt.value})
		c := specOf(ctr("a", bind("/mnt/data", "/data", tt.options...)))
		if got := c.propagates(req); got != tt.want {
			t.Errorf("%q with %q: %t", tt.value, tt.options, got)
		}
	}
}
