package node

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
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

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, cgroupOf(name))); err != nil {
		t.Fatal(err)
	}
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

// TestExitsAreRecorded verifies that each way to learn of the end of a container adds it to the pod's record,
// once. A program that starts anew keeps these exits.
func TestExitsAreRecorded(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"), cgroupOf("c"), cgroupOf("d"), cgroupOf("free"))
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi rbps=2Mi wiops=max", limitsKey + "container.free": "rootfs wbps=max"})
	want := map[string][]uint64{}
	for _, name := range []string{"a", "b", "c", "d", "free"} {
		if err := n.start(t.Context(), sb, ctr(name), true); err != nil {
			t.Fatal(err)
		}
		want[name] = idsOf(t, h, name)
	}

	remove(t, dir, "a")
	n.Stopped("sb1", "id-a")
	n.Removed("sb1", "id-a")
	remove(t, dir, "b") // without an event
	n.pass(t.Context())
	n.pass(t.Context())
	remove(t, dir, "c") // and lifted in time
	c, do := n.noteEnded(cgroupOf("c"))
	if !do.Has(lifecycle.HandOver) {
		t.Fatal("c is not known")
	}
	(&endedContainer{n, c, do}).Lifted(true)
	n.Stopped("sb1", "id-c")
	remove(t, dir, "free")
	n.Stopped("sb1", "id-free")
	n.pass(t.Context())

	// Again, by a program that knows nothing.
	n = newNode(t, h)
	if err := n.start(t.Context(), sb, ctr("d"), true); err != nil {
		t.Fatal(err)
	}
	remove(t, dir, "d")
	n.Stopped("sb1", "id-d")
	n.pass(t.Context())

	got := exitsOf(t, h)
	for i := range got {
		if age := time.Since(got[i].At); age < 0 || age > time.Minute || got[i].At.Location() != time.UTC {
			t.Errorf("%s ended at %v", got[i].Container, got[i].At)
		}
		got[i].At = time.Time{}
	}
	limits := settingOf(rootDisk.Dev, blkio.Wbps, 1<<20)
	wanted := []record.Exit{
		{Container: "a", CgroupIDs: want["a"], Limits: limits},
		{Container: "b", CgroupIDs: want["b"], Limits: limits},
		{Container: "c", CgroupIDs: want["c"]},
		{Container: "free", CgroupIDs: want["free"]},
		{Container: "d", CgroupIDs: want["d"], Limits: limits},
	}
	if d := cmp.Diff(wanted, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// fakeHeld is a cgroup with limits that can be lifted.
type fakeHeld struct{ path string }

func (h fakeHeld) Path() string            { return h.path }
func (h fakeHeld) Lift([]blkio.Line) error { return nil }
func (h fakeHeld) Close()                  {}

// TestStopBeforeWatch verifies that an end which the runtime reports before the exit watch
// is recorded once it is known whether the limits were lifted.
func TestStopBeforeWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := tree(t, podCgroup, cgroupOf("a"))
		n := newNode(t, h)
		n.peek().watch = &fakeWatch{}
		if err := n.start(t.Context(), sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"}), ctr("a"), true); err != nil {
			t.Fatal(err)
		}
		n.Stopped("sb1", "id-a")
		n.pass(t.Context())
		n.exits.ends.Exited(t.Context(), fakeHeld{cgroupOf("a")})
		synctest.Wait()
		n.pass(t.Context())
		if got := exitsOf(t, h); len(got) != 1 || len(got[0].Limits) > 0 {
			t.Errorf("ends %+v, want one without limits", got)
		}
		if got := scrape(t, n)["exits_total{lifted}"]; got != 1 {
			t.Errorf("%v lifted, want 1", got)
		}
	})
}

// TestExitsAreNotRewritten verifies that a record with exits is written no more often than one without.
func TestExitsAreNotRewritten(t *testing.T) {
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
	// The file has all that was written, as one line.
	for _, cg := range []string{podCgroup, cgroupOf("b")} {
		write(t, filepath.Join(dir, cg, "io.max"), "254:0 rbps=max wbps=1048576 riops=max wiops=max\n")
	}
	n.pass(t.Context())
	n.pass(t.Context())
	for _, g := range n.peek().groups {
		if !n.groupIsUnchanged(g.groupIdentity) {
			t.Error("the group is not unchanged after two passes")
		}
	}
	if got := exitsOf(t, h); len(got) != 1 {
		t.Errorf("%d exits recorded, want 1", len(got))
	}
}

// TestRemainingLimits verifies that the limits of a record lack the source, and that those of the decision,
// which others read meanwhile, keep it.
func TestRemainingLimits(t *testing.T) {
	source := policy.Source{Kind: policy.FromAnnotation, Name: limitsKey + "containers", Entry: 1}
	limit := policy.Setting{Source: source, Value: blkio.Value{Address: blkio.Address{Key: blkio.Wbps, Dev: blkio.Dev{Major: 8}}, Amount: 1 << 20}}
	c := &snapshot{}
	c.decision.desired.Settings = policy.NewSettings(limit)
	got := remainingLimits(c)
	if len(got) != 1 || got[0].Value != limit.Value || got[0].Source != (policy.Source{}) {
		t.Errorf("remaining: %+v, want %+v without a source", got, limit)
	}
	if kept := c.decision.desired.Settings[0]; kept != limit {
		t.Errorf("the decision has %+v, want %+v", kept, limit)
	}
}
