package node

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

func exitsOf(t *testing.T, h *cgroupfs.Hierarchy) []record.Exit {
	t.Helper()
	r, err := record.Read(h.Cgroup(podCgroup), record.KindPod)
	if err != nil {
		t.Fatal(err)
	}
	if r == nil {
		return nil
	}
	return r.Exits
}

// idsOf returns the IDs of a container's cgroup and those below it.
func idsOf(t *testing.T, h *cgroupfs.Hierarchy, name string) []uint64 {
	t.Helper()
	ids, err := h.Cgroup(cgroupOf(name)).IDs()
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestLateChildIsRecorded verifies that the exit of a container has the cgroups that were made below its own after the first
// comparison, as by a container runtime within it, and those that were removed again.
func TestLateChildIsRecorded(t *testing.T) {
	early, late := cgroupOf("a")+"/early", cgroupOf("a")+"/late"
	h, dir := tree(t, podCgroup, cgroupOf("a"), early)
	n := newNode(t, h)
	start(t, n, sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"}), "a")
	want := idsOf(t, h, "a")
	if err := os.Mkdir(filepath.Join(dir, late), 0o755); err != nil {
		t.Fatal(err)
	}
	id, err := h.Cgroup(late).ID()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, early)); err != nil {
		t.Fatal(err)
	}
	c, do := n.noteEnded(cgroupOf("a"))
	(&endedContainer{n, c, do}).Lifted(true)
	n.pass(t.Context())
	if got := exitsOf(t, h); len(got) != 1 || !slices.Equal(got[0].CgroupIDs, append(want, id)) {
		t.Errorf("exits %+v, want one of %v", got, append(want, id))
	}
}
