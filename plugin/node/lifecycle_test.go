package node

import (
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

// TestRaiseBelow verifies that limits are also raised on the cgroup of crun, which keeps those of the spec.
func TestRaiseBelow(t *testing.T) {
	sub := cgroupOf("a") + "/container"
	h, dir := tree(t, podCgroup, cgroupOf("a"), sub)
	n := newNode(t, h)
	for _, cg := range []string{cgroupOf("a"), sub} {
		write(t, filepath.Join(dir, cg, "io.max"), "254:0 rbps=max wbps=1048576 riops=max wiops=max\n")
	}
	c := ctr("a")
	c.Unified = map[string]string{"io.max": "254:0 wbps=1048576"}
	if err := n.start(t.Context(), sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=2Mi"}), c, true); err != nil {
		t.Fatal(err)
	}
	for _, cg := range []string{cgroupOf("a"), sub} {
		if got := wbps(t, n, cg); got != 2<<20 {
			t.Errorf("%s has %v, want 2 MiB/s", cg, got)
		}
	}
}

// TestHugeRecord verifies that limits are in force although their record is too large for any filesystem.
func TestHugeRecord(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	many := blkio.Backing{FSType: "btrfs"}
	for i := range 10000 {
		many.Disks = append(many.Disks, blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: uint32(i)}, Name: "vd"})
	}
	n.storage = fakenode.NewResolver(func(string) blkio.Backing { return many })
	err := n.start(t.Context(), sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"}), ctr("a"), true)
	if err == nil {
		t.Error("a record that cannot be written: no error")
	}
	m, err := h.Cgroup(cgroupOf("a")).ReadIOMax()
	if err != nil || len(m) == 0 {
		t.Errorf("io.max is %v, %v", m, err)
	}
}
