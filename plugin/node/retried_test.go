package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/record"
)

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
	if err := n.recall(g); err == nil {
		t.Fatal("what is below a file can be read")
	}
	if n.planFor(g); n.planOf(g) != nil || !n.mayRecall(g) {
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
