package inventory

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// reduced returns a copy of a spec that was reduced.
func reduced(spec *Spec, room int) (out *Spec, size int) {
	clone := *spec
	clone.Mounts = slices.Clone(spec.Mounts)
	size = clone.Reduce(room)
	return &clone, size
}

// TestReduce verifies that a reduced spec has all that a decision depends on, and lacks the rest.
func TestReduce(t *testing.T) {
	spec := &Spec{
		Name: "db",
		Mounts: []Mount{
			{Type: "tmpfs", Source: "tmpfs", Destination: "/dev", Options: ParseOptions("nosuid", "size=64k")},
			bind("/mnt/data/x", "/data", "rbind", "rprivate", "rw"),
			{Type: "none", Source: "/mnt/log", Destination: "/log", Options: ParseOptions("bind", "ro", "rslave")},
		},
		Devices: []Device{
			{Path: "/dev/raw", Type: "b", Dev: dataDisk.Dev},
			{Path: "/dev/null", Type: "c", Dev: blkio.Dev{Major: 1, Minor: 3}},
			{Path: "/dev/kmsg", Type: "c", Dev: blkio.Dev{Major: 1, Minor: 11}},
		},
	}
	got, size := reduced(spec, 1<<20)
	want := &Spec{
		Name:    "db",
		Mounts:  []Mount{{Type: "tmpfs", Destination: "/dev"}, bind("/mnt/data/x", "/data", "rbind"), bind("/mnt/log", "/log", "ro", "rslave")},
		Devices: []Device{spec.Devices[0], spec.Devices[2]},
	}
	if diff := cmp.Diff(want, got); diff != "" || size < 200 || size > 500 {
		t.Errorf("%d bytes, %s", size, diff)
	}
	for i := range spec.Mounts {
		a, b := &spec.Mounts[i], &got.Mounts[i]
		if a.IsBind() != b.IsBind() || a.IsRecursive() != b.IsRecursive() || a.IsPropagated() != b.IsPropagated() || a.IsBind() && a.IsReadOnly() != b.IsReadOnly() {
			t.Errorf("%+v became %+v", a, b)
		}
	}
	if c := NewContainer(spec); !cmp.Equal(c.kept, want) {
		t.Errorf("a container keeps %+v, want only %+v", c.kept, want)
	}
}

// crowded returns a spec with more mounts and devices than are kept. Some of the last ones are below others, or
// hide them.
func crowded() *Spec {
	long := "/mnt/data/" + strings.Repeat("x", 400)
	spec := &Spec{Name: "db", Mounts: []Mount{{Type: "tmpfs", Source: "tmpfs", Destination: "/dev"}, bind("/srv", "/srv", "rbind"), bind("/var", "/hidden", "rbind")}}
	for i := range 4000 {
		spec.Mounts = append(spec.Mounts, bind("/mnt/data/"+strings.Repeat("x", 100), fmt.Sprint("/data", i), "rbind"))
	}
	spec.Mounts = append(spec.Mounts, bind(long, "/srv/sub/", "rbind"), bind(long, "/hidden", "rbind"))
	spec.Devices = []Device{{Path: "/raw", Type: "b", Dev: dataDisk.Dev}, {Path: "/dev/" + strings.Repeat("y", 200), Type: "b", Dev: dataDisk.Dev}}
	return spec
}

// TestLeftOut verifies that a mount or device that did not fit is an error of each target that may select it,
// and of no other. It is not searched for again, because no other facts will come.
func TestLeftOut(t *testing.T) {
	kept, size := reduced(crowded(), 64<<10-100)
	if n := len(kept.Mounts) + len(kept.Devices); n < 100 || n+kept.LeftOut != 4007 || len(kept.Devices) != 1 || size > 64<<10 || cap(kept.Mounts) > n+n/4 {
		t.Fatalf("%d mounts of room for %d, %d devices, %d left out, %d bytes", n, cap(kept.Mounts), len(kept.Devices), kept.LeftOut, size)
	}
	for value, fails := range map[string]bool{
		"* wbps=1Mi": true, "rootfs wbps=1Mi": false, "/data0 wbps=1Mi": false, "/data0/x wbps=1Mi": false, "/data3999 wbps=1Mi": true,
		"/raw wbps=1Mi": false, "/dev/raw wbps=1Mi": true, "/srv/sub wbps=1Mi": true, "/srv/sub/x wbps=1Mi": true, "/hidden wbps=1Mi": true, "@scratch wbps=1Mi": true,
	} {
		r := annotation.Parse(map[string]string{"limits.blkio.noderesource.dev/containers": value})
		c, f := NewContainer(kept), &Finder{Storage: fakenode.NewResolver(twoDisks)}
		for range 2 {
			c.spec = kept
			if err := f.Find(t.Context(), &Pod{Targets: r.Targets()}, Layer{Dir: "/layers"}, &c); err != nil {
				t.Fatal(err)
			}
			_, err := policy.Default().ForPod(nil, r).Container(c.Facts)
			if (err != nil) != fails || fails && !strings.Contains(err.Error(), "did not keep all of the container's mounts") {
				t.Errorf("%s: %v", value, err)
			}
			if c.Err() != nil || !c.IsResolved() {
				t.Errorf("%s: the disks are searched for again: %v", value, c.Err())
			}
		}
	}
}

// TestTooMany verifies that a container has too many mounts if some do not fit into its room, and not if they were left out
// before; and that the error of a target has the cause.
func TestTooMany(t *testing.T) {
	spec := crowded()
	bystanding, _ := reduced(spec, 64<<10)
	for name, tt := range map[string]struct {
		spec  *Spec
		room  int
		want  bool
		cause string
	}{
		"all fit":        {spec, 2 << 20, false, ""},
		"some fit":       {spec, 64 << 10, true, "did not keep all of the container's mounts, because the pod has too many"},
		"none fits":      {spec, 0, true, "because the pod has too many"},
		"left out":       {bystanding, 1 << 20, false, "while the node policy had no class for it"},
		"left out again": {bystanding, 1 << 10, true, "because the pod has too many"},
	} {
		spec, _ := reduced(tt.spec, math.MaxInt)
		c, f := NewContainerWithin(spec, tt.room), &Finder{Storage: fakenode.NewResolver(twoDisks)}
		if c.HasTooManyMounts() != tt.want || c.Size > tt.room {
			t.Errorf("%s: too many: %t, %d bytes", name, c.HasTooManyMounts(), c.Size)
		}
		r := annotation.Parse(map[string]string{"limits.blkio.noderesource.dev/containers": "/data3999 wbps=1Mi"})
		if err := f.Find(t.Context(), &Pod{Targets: r.Targets()}, Layer{Dir: "/layers"}, &c); err != nil {
			t.Fatal(err)
		}
		_, err := policy.Default().ForPod(nil, r).Container(c.Facts)
		if (err != nil) != (tt.cause != "") || err != nil && !strings.Contains(err.Error(), tt.cause) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if new(Container).HasTooManyMounts() {
		t.Error("a container without a spec")
	}
}

// TestLeftOutTargets verifies that an error about left-out mounts ends with the target, and that the disks
// found before stay.
func TestLeftOutTargets(t *testing.T) {
	kept, _ := reduced(crowded(), 64<<10)
	c, f := NewContainer(kept), &Finder{Storage: fakenode.NewResolver(twoDisks)}
	for _, tt := range []struct {
		value string
		fails bool
		disks []blkio.Disk // of the limit
	}{
		{"* wbps=1Mi", true, []blkio.Disk{rootDisk, dataDisk}},
		{"/srv/sub wbps=1Mi", true, nil},
		{"rootfs wbps=1Mi", false, []blkio.Disk{rootDisk}},
		{"@scratch wbps=1Mi; /data0 wbps=2Mi", true, []blkio.Disk{dataDisk}},
	} {
		r := annotation.Parse(map[string]string{"limits.blkio.noderesource.dev/containers": tt.value})
		c.InvalidateFor(r.Targets())
		if c.spec == nil {
			c.spec = kept
		}
		if err := f.Find(t.Context(), &Pod{Targets: r.Targets()}, Layer{Dir: "/layers"}, &c); err != nil {
			t.Fatal(err)
		}
		d, err := policy.Default().ForPod(nil, r).Container(c.Facts)
		var got []blkio.Disk
		for _, s := range d.Settings {
			got = append(got, blkio.Disk{Dev: s.Dev, Name: d.Disks[s.Dev]})
		}
		if diff := cmp.Diff(tt.disks, got); diff != "" || (err != nil) != tt.fails {
			t.Errorf("%s: %v\n%s", tt.value, err, diff)
		}
	}
}

// TestPrivilegedReduced verifies that a privileged container with more devices than are kept is still known as
// one: "*" does not mean the devices that are kept.
func TestPrivilegedReduced(t *testing.T) {
	spec := &Spec{Name: "agent"}
	for i := range 10_000 {
		spec.Devices = append(spec.Devices, Device{Path: fmt.Sprint("/dev/dm-", i), Type: "b", Dev: blkio.Dev{Major: 253, Minor: uint32(i)}})
	}
	spec.Devices = append(spec.Devices, Device{Path: "/dev/kmsg", Type: "c", Dev: blkio.Dev{Major: 1, Minor: 11}}, Device{Path: "/dev/mem", Type: "c", Dev: blkio.Dev{Major: 1, Minor: 1}})
	kept, _ := reduced(spec, 64<<10)
	c, f := NewContainer(kept), &Finder{Storage: fakenode.NewResolver(twoDisks)}
	if err := f.Find(t.Context(), podWith("* wbps=1Mi"), Layer{Dir: "/layers"}, &c); err != nil {
		t.Fatal(err)
	}
	d, _ := policy.Default().ForPod(nil, annotation.Parse(map[string]string{"limits.blkio.noderesource.dev/containers": "* wbps=1Mi"})).Container(c.Facts)
	if n := len(kept.Devices); n < 1000 || n+kept.LeftOut != 10_001 || len(d.Settings) != 1 || d.Settings[0].Dev != rootDisk.Dev {
		t.Errorf("%d devices, %d left out, %d limits", n, kept.LeftOut, len(d.Settings))
	}
}

// TestCutAll verifies that paths are searched for up to a total length. For paths after that, each mount counts
// as one around them.
func TestCutAll(t *testing.T) {
	spec := &Spec{Mounts: []Mount{bind("/srv", "/srv", "rbind")}}
	for i := range 20 {
		spec.Mounts = append(spec.Mounts, bind("/var", fmt.Sprint("/", i, strings.Repeat("/x", 2000)), "rbind"))
	}
	for room, want := range map[int]bool{60 << 10: false, 200: true} {
		if kept, _ := reduced(spec, room); kept.LeftOut == 0 || kept.Mounts[0].IsCut != want {
			t.Errorf("%d bytes: %d left out, /srv %+v", room, kept.LeftOut, kept.Mounts[0])
		}
	}
}
