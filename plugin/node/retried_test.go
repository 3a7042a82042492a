package node

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// TestUnparsableHidesNothing verifies that a container with a cgroup path that cannot be parsed does not stand
// for containers that are known by their cgroups only.
func TestUnparsableHidesNothing(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("unheard"))
	write(t, filepath.Join(dir, cgroupOf("unheard"), "cgroup.events"), "populated 1\nfrozen 0\n")
	n := newNode(t, h)
	c := ctr("a")
	c.Cgroup = "no:path"
	if err := n.start(t.Context(), sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"}), c, true); err == nil {
		t.Error("a container without a known cgroup is limited")
	}
	v := n.applier().viewOf(n.peek().pods["sb1"].group)
	if got := n.applier().unknownContainers(&v); len(got) != 1 {
		t.Errorf("%d unknown containers, want 1", len(got))
	}
}

// TestRecallsAgain verifies that a record that cannot be read is read again.
func TestRecallsAgain(t *testing.T) {
	h, dir := tree(t, podCgroup)
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "pod-total": "rootfs wbps=1Mi"})
	g := n.lookup(sb).group
	parent := filepath.Join(dir, filepath.Dir(podCgroup))
	if err := os.Rename(parent, parent+".away"); err != nil {
		t.Fatal(err)
	}
	write(t, parent, "no directory")
	if err := n.applier().readPodRecord(g); err == nil {
		t.Fatal("what is below a file can be read")
	}
	if n.applier().planFor(g); n.pods.planOf(g) != nil || n.pods.isPodRecordRead(g) {
		t.Error("a plan is kept that was made without the record")
	}
	if err := os.Remove(parent); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(parent+".away", parent); err != nil {
		t.Fatal(err)
	}
	want := record.Exit{Container: "gone", CgroupIDs: []uint64{7}}
	if err := record.Write(h.Cgroup(podCgroup), &record.Record{Kind: record.KindPod, Exits: []record.Exit{want}}); err != nil {
		t.Fatal(err)
	}
	n.pass(t.Context())
	if got := exitsOf(t, h); len(got) != 1 || got[0].Container != "gone" {
		t.Errorf("exits %+v", got)
	}
}

// TestLateRejection verifies that a creation that is rejected after the runtime has given it up, and has started the container,
// does not keep the container from counting for the budget.
func TestLateRejection(t *testing.T) {
	b := newBudgetNode(t, tenantBudget+"floors: {bps: 3Mi}\n")
	sb := tenant("1", "* wbps=2Mi")
	c := member(sb, "a", bind("/mnt/data/x", "/data"))
	b.place(sliceOf("1"))
	b.place(b.cgroupOf(sb, c))
	ctx, cancel := context.WithCancel(t.Context())
	once := true
	b.storage = disks{func(path string) blkio.Backing {
		if once && strings.HasPrefix(path, "/mnt/data") { // the disk answers late, and another policy is in force then
			once = false
			cancel()
			b.policy.Store(rules(t, tenantBudget))
			if err := b.start(t.Context(), sb, c, false); err != nil {
				t.Error(err)
			}
		}
		return twoDisks(path)
	}}
	pod := b.lookup(sb)
	if _, err := b.decideNew(ctx, pod, c, false); once || err == nil || !strings.Contains(err.Error(), "floor") {
		t.Fatalf("looked up %v, error %v", !once, err)
	}
	b.pass(t.Context())
	b.wantGranted("started", "tenant-a vda wbps 2Mi of 200Mi, 1 pods; tenant-a vdb wbps 2Mi of 200Mi, 1 pods")
}
