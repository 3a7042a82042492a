package inventory

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// linked is a host on which dataDisk has lowerDisk below it, and that has a link of udev.
type linked struct{ *host }

func (linked) Under(_ context.Context, disk blkio.Dev) []blkio.Disk {
	if disk == dataDisk.Dev {
		return []blkio.Disk{lowerDisk}
	}
	return nil
}

func (linked) Links(disk blkio.Dev) []string {
	if disk == lowerDisk.Dev {
		return []string{"/dev/disk/by-id/lower"}
	}
	return nil
}

// TestFindNames verifies that Find returns the disks below others, and their links, for targets by name only.
func TestFindNames(t *testing.T) {
	f := Finder{Storage: linked{newHost()}, KubeletRoot: "/var/lib/kubelet"}
	for element, want := range map[string]policy.Stack{
		"disk:sd* wbps=1Mi": {
			Under: map[blkio.Dev][]blkio.Disk{rootDisk.Dev: nil, dataDisk.Dev: {lowerDisk}},
			Links: map[blkio.Dev][]string{rootDisk.Dev: nil, dataDisk.Dev: nil, lowerDisk.Dev: {"/dev/disk/by-id/lower"}},
		},
		"* wbps=1Mi": {},
	} {
		l, _ := annotation.ParseLimits("classes.a", []string{element})
		c := NewContainer(&Spec{Mounts: []Mount{bind("/mnt/data", "/data", "rbind", "rw")}})
		if err := f.Find(t.Context(), &Pod{UID: "u1", Sandbox: "s1", Targets: l.Targets()}, Layer{Dir: "/layers"}, &c); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, policy.Stack{Under: c.Facts.Under, Links: c.Facts.Links}); diff != "" {
			t.Errorf("%s: -want +got:\n%s", element, diff)
		}
	}
	c := NewContainer(&Spec{Mounts: []Mount{bind("/mnt/data", "/data", "rbind", "rw")}})
	if err := f.Find(t.Context(), podWith("* wbps=1Mi"), Layer{Dir: "/layers"}, &c); err != nil || !c.IsResolved() {
		t.Fatal(err)
	}
	l, _ := annotation.ParseLimits("classes.a", []string{"disk:sd* wbps=1Mi"})
	if c.InvalidateFor(l.Targets()); c.IsResolved() {
		t.Error("a class with targets by name does not resolve the disks again")
	}
}

// TestFindPhysical verifies that Find returns the disks below a volume's disk for weights.
func TestFindPhysical(t *testing.T) {
	h := newHost()
	h.below["/mnt/data/below"] = on(lowerDisk)
	f := Finder{Storage: h, KubeletRoot: "/var/lib/kubelet"}
	for key, want := range map[string]map[blkio.Dev][]blkio.Disk{
		"weight.blkio.noderesource.dev/containers": {dataDisk.Dev: {rootDisk, lowerDisk}}, "weight.blkio.noderesource.dev/pod-total": {dataDisk.Dev: {rootDisk, lowerDisk}}, containers: nil,
	} {
		value := "/data 5; * 100"
		if key == containers {
			value = "* wbps=1Mi"
		}
		c := NewContainer(&Spec{Mounts: []Mount{bind("/mnt/data", "/data", "rbind", "rw")}})
		if err := f.Find(t.Context(), &Pod{UID: "u1", Sandbox: "s1", Targets: annotation.Parse(map[string]string{key: value}).Targets()}, Layer{Dir: "/layers"}, &c); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, c.Facts.Physical); diff != "" {
			t.Errorf("%s: -want +got:\n%s", key, diff)
		}
	}
}
