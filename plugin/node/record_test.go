package node

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

const forged = `{"v":2,"kind":"container","namespace":"kube-system","pod":"innocent","uid":"x","cleared":true}`

// forge writes a record as the container's uid 0 can, where its runtime mounts its cgroups
// writable for it.
func forge(t *testing.T, dir, cgroup, text string) {
	t.Helper()
	if err := unix.Setxattr(filepath.Join(dir, cgroup), record.Xattr, []byte(text), 0); err != nil {
		t.Skip(err)
	}
}

// TestForgedRecord verifies that a record that a container writes on its own cgroup's directory has no effect
// and is removed, even if it was written before the plugin's first read.
func TestForgedRecord(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("db"))
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "container.db": "rootfs wbps=1Mi"})
	ioMax := filepath.Join(dir, cgroupOf("db"), "io.max")
	forge(t, dir, cgroupOf("db"), forged)
	if err := n.start(t.Context(), sb, ctr("db"), true); err != nil {
		t.Fatal(err)
	}
	if got := read(t, ioMax); got != "254:0 wbps=1048576" {
		t.Fatalf("io.max %q", got)
	}
	forge(t, dir, cgroupOf("db"), forged)
	forge(t, dir, cgroupOf("db"), strings.Replace(forged, "container", "pod", 1))
	write(t, ioMax, "") // the disk has left and is back
	n.pass(t.Context())
	if got := read(t, ioMax); got != "254:0 wbps=1048576" {
		t.Errorf("io.max after a pass: %q", got)
	}
	r, err := record.Read(h.Cgroup(cgroupOf("db")), record.KindContainer)
	if err != nil || r == nil || r.Namespace != "prod" || r.Cleared {
		t.Errorf("record %+v, %v", r, err)
	}
	if raw, err := h.Cgroup(cgroupOf("db")).ReadXattr(record.Xattr); raw != nil || err != nil {
		t.Errorf("the forged record stays: %q, %v", raw, err)
	}
}

// TestWalkedRecords verifies that a walk over the node gives the records that count, and none that a container
// may have written.
func TestWalkedRecords(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("db"), cgroupOf("db")+"/own", "system.slice/cri-containerd-x.scope", "plain/ctr")
	write := func(path, kind string) {
		t.Helper()
		if err := record.Write(h.Cgroup(path), &record.Record{Kind: kind, Pod: path}); err != nil {
			t.Skip(err)
		}
	}
	write(podCgroup, record.KindPod)
	write(cgroupOf("db"), record.KindContainer)
	write(cgroupOf("gone"), record.KindContainer)
	for _, cgroup := range []string{cgroupOf("db"), cgroupOf("db") + "/own", "system.slice/cri-containerd-x.scope", "plain/ctr"} {
		forge(t, dir, cgroup, forged)
	}
	var found []string
	err := h.Walk(record.Xattr, func(c cgroupfs.Cgroup, a cgroupfs.Attribute) error {
		r, err := record.ParseAttribute(a)
		if r != nil {
			found = append(found, r.Pod)
		}
		return err
	})
	if want := podCgroup + " " + cgroupOf("db"); err != nil || strings.Join(found, " ") != want {
		t.Errorf("found %q, %v, want %q", found, err, want)
	}
}

// TestRecordGoesWithCgroup verifies that the pod's directory does not keep the records of removed containers.
// The kernel has room for 128.
func TestRecordGoesWithCgroup(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	for _, name := range []string{"a", "b"} {
		if err := n.start(t.Context(), sb, ctr(name), true); err != nil {
			t.Fatal(err)
		}
	}
	remove(t, dir, "a")
	n.Stopped("sb1", "id-a")
	n.Removed("sb1", "id-a")
	n.pass(t.Context())
	left, err := h.Cgroup(podCgroup).ListAbove(record.Xattr)
	if err != nil || len(left) != 1 || left[0].Path() != cgroupOf("b") {
		t.Errorf("records of %v, %v", left, err)
	}
	if _, err := record.Read(h.Cgroup(cgroupOf("a")), record.KindContainer); !errors.Is(err, blkio.ErrGone) {
		t.Errorf("the record of a container that has gone: %v", err)
	}
}
