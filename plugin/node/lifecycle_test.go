package node

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
)

// flaky is a Storage that cannot read the mount table while it is broken.
type flaky struct {
	disks
	broken *bool
}

func (f flaky) Refresh(context.Context) error {
	if *f.broken {
		return errors.New("no mounts")
	}
	return nil
}

func limit(t *testing.T, n *Node, cgroup string) blkio.Limits {
	t.Helper()
	m, err := n.cgroups.Cgroup(cgroup).ReadIOMax()
	if err != nil {
		t.Fatal(err)
	}
	return m[rootDisk.Dev]
}

// TestCreatedAgain verifies that a late event of a container that was created again under the same ID does not
// change its successor.
func TestCreatedAgain(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	var made []*container
	for range 2 {
		if _, err := n.create(t.Context(), sb, ctr("a"), false); err != nil {
			t.Fatal(err)
		}
		made = append(made, n.peek().pods["sb1"].containers["id-a"])
	}
	n.noteRunning(made[0].identity)
	if now := n.peek().pods["sb1"].containers["id-a"]; made[0] == made[1] || now != made[1] || now.life.Phase() != lifecycle.Created {
		t.Errorf("the pod has %p, want %p in phase %v", now, made[1], lifecycle.Created)
	}
	if got := scrape(t, n)["unexpected_events_total"]; got != 0 {
		t.Errorf("%v unexpected events", got)
	}
}

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
		if got := limit(t, n, cg)[blkio.Wbps]; got != 2<<20 {
			t.Errorf("%s has %v, want 2 MiB/s", cg, got)
		}
	}
}

// TestHugeRecord verifies that limits are in force although their record is too large for any filesystem.
func TestHugeRecord(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	n.storage = disks{func(string) blkio.Backing {
		b := blkio.Backing{FSType: "btrfs"}
		for i := range 10000 {
			b.Disks = append(b.Disks, blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: uint32(i)}, Name: "vd"})
		}
		return b
	}}
	err := n.start(t.Context(), sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"}), ctr("a"), true)
	if err == nil {
		t.Error("a record that cannot be written: no error")
	}
	m, err := h.Cgroup(cgroupOf("a")).ReadIOMax()
	if err != nil || len(m) == 0 {
		t.Errorf("io.max is %v, %v", m, err)
	}
}
