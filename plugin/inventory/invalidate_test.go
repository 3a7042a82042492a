package inventory

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestInvalidate verifies that a container is resolved again while its disks may change.
func TestInvalidate(t *testing.T) {
	for options, want := range map[string]bool{"rslave": true, "rprivate": false} {
		f := Finder{Storage: newHost()}
		c := NewContainer(&Spec{Mounts: []Mount{bind("/mnt/data", "/data", "rbind", options)}})
		if err := f.Find(t.Context(), podWith("* wbps=1Mi"), Layer{Dir: "/layers"}, &c); err != nil {
			t.Fatal(err)
		}
		if got := c.Invalidate(); got != want || c.Follows() != want || c.Propagates() != want || c.IsResolved() == want {
			t.Errorf("%s: Invalidate returned %t, want %t: %+v", options, got, want, c)
		}
	}
}

// TestInvalidateAtMore verifies that a container on a filesystem that can get more disks is resolved again.
func TestInvalidateAtMore(t *testing.T) {
	h := newHost()
	h.Find = func(string) blkio.Backing { return blkio.Backing{FSType: "btrfs", Disks: []blkio.Disk{dataDisk}} }
	f, c := Finder{Storage: h}, NewContainer(&Spec{})
	if err := f.Find(t.Context(), podWith("rootfs wbps=1Mi"), Layer{Dir: "/layers"}, &c); err != nil {
		t.Fatal(err)
	}
	if !c.Follows() || c.Propagates() || !c.Invalidate() || c.IsResolved() {
		t.Errorf("follows %t, propagates %t, resolved %t", c.Follows(), c.Propagates(), c.IsResolved())
	}
}
