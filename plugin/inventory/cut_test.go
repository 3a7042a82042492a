package inventory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestWithin: the copy has all that a decision depends on, and lacks the rest.
func TestWithin(t *testing.T) {
	spec := &Spec{
		Name: "db",
		Mounts: []Mount{
			{Type: "tmpfs", Source: "tmpfs", Destination: "/dev", Options: []string{"nosuid", "size=64k"}},
			bind("/mnt/data/x", "/data", "rbind", "rprivate", "rw"),
			{Type: "none", Source: "/mnt/log", Destination: "/log", Options: []string{"bind", "ro", "rslave"}},
		},
		Devices: []Device{
			{Path: "/dev/raw", Type: "b", Dev: dataDisk.Dev},
			{Path: "/dev/null", Type: "c", Dev: blkio.Dev{Major: 1, Minor: 3}},
			{Path: "/dev/kmsg", Type: "c", Dev: blkio.Dev{Major: 1, Minor: 11}},
		},
	}
	got, size := spec.Within(1 << 20)
	want := &Spec{
		Name:    "db",
		Mounts:  []Mount{{Type: "tmpfs", Destination: "/dev"}, bind("/mnt/data/x", "/data", "rbind"), bind("/mnt/log", "/log", "ro", "rslave")},
		Devices: []Device{spec.Devices[0], spec.Devices[2]},
	}
	if diff := cmp.Diff(want, got); diff != "" || size < 300 || size > 600 {
		t.Errorf("%d bytes, %s", size, diff)
	}
	for i := range spec.Mounts {
		a, b := &spec.Mounts[i], &got.Mounts[i]
		if a.IsBind() != b.IsBind() || a.IsRecursive() != b.IsRecursive() || a.IsPropagated() != b.IsPropagated() || a.IsBind() && a.IsReadOnly() != b.IsReadOnly() {
			t.Errorf("%+v became %+v", a, b)
		}
	}
}

// TestLeftOut: what did not fit is an error of each target that may mean it, and of no other.
func TestLeftOut(t *testing.T) {
	spec := &Spec{Name: "db"}
	for i := range 4000 {
		spec.Mounts = append(spec.Mounts, bind("/mnt/data/"+strings.Repeat("x", 100), fmt.Sprint("/data", i), "rbind"))
	}
	spec.Devices = []Device{{Path: "/dev/raw", Type: "b", Dev: dataDisk.Dev}}
	kept, size := spec.Within(64 << 10)
	if n := len(kept.Mounts); n < 100 || n+kept.LeftOut != 4001 || size > 64<<10 || cap(kept.Mounts) != n {
		t.Fatalf("%d mounts of room for %d, %d left out, %d bytes", n, cap(kept.Mounts), kept.LeftOut, size)
	}
	for value, fails := range map[string]bool{
		"* wbps=1Mi": true, "rootfs wbps=1Mi": false, "/data0 wbps=1Mi": false, "/data3999 wbps=1Mi": true, "/dev/raw wbps=1Mi": true,
	} {
		r := annotation.Parse(map[string]string{"limits.blkio.noderesource.dev/containers": value})
		c, f := NewContainer(kept), &Finder{Storage: disks{twoDisks}}
		if err := f.Find(t.Context(), &Pod{Targets: r.Targets()}, Layer{Dir: "/layers"}, &c); err != nil {
			t.Fatal(err)
		}
		_, err := policy.Default().ForPod(nil, r).Container(c.Facts)
		if (err != nil) != fails || fails && !strings.Contains(err.Error(), "did not keep all of the container's mounts") {
			t.Errorf("%s: %v", value, err)
		}
		if c.Err() == nil || c.IsResolved() {
			t.Errorf("%s: all disks count as found", value)
		}
	}
}
