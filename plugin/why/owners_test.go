package why

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// removedID and the ID after it belong to no existing cgroup.
const removedID = 1 << 52

// TestFileOwners verifies that a cgroup without a record has that of the nearest cgroup above.
func TestFileOwners(t *testing.T) {
	dir := t.TempDir()
	fakenode.WriteFiles(t, dir, map[string]string{
		"cgroup.controllers": "io\n", "kubepods/pod1/db/below/cgroup.events": "", "system/sshd/cgroup.events": "",
	})
	tree := fakenode.OpenCgroups(t, dir)
	for cg, r := range map[string]record.Record{
		"kubepods/pod1":    {Kind: record.KindPod, Namespace: "prod", Pod: "db-0", UID: "1", Exits: []record.Exit{{Container: "web", CgroupIDs: []uint64{removedID}}}},
		"kubepods/pod1/db": {Kind: record.KindContainer, Namespace: "prod", Pod: "db-0", UID: "1", Container: "db"},
	} {
		if err := record.Write(tree.Cgroup(cg), &r); err != nil {
			t.Fatal(err)
		}
	}
	id := func(cg string) uint64 {
		info, err := os.Stat(filepath.Join(dir, cg))
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Ino
	}
	prod := func(state, container string) FileOwner {
		return FileOwner{State: state, Namespace: "prod", Pod: "db-0", Container: container}
	}
	var (
		paths  []string
		owners []writeback.Owner
		want   []FileOwner
	)
	for _, tt := range []struct {
		path   string
		owner  uint64
		cgroup string
		want   FileOwner
	}{
		{"/of/a/container", id("kubepods/pod1/db"), "kubepods/pod1/db", prod(OwnerLive, "db")},
		{"/of/a/cgroup/below", id("kubepods/pod1/db/below"), "kubepods/pod1/db/below", prod(OwnerLive, "db")},
		{"/of/the/pod", id("kubepods/pod1"), "kubepods/pod1", prod(OwnerLive, "")},
		{"/of/no/pod", id("system/sshd"), "system/sshd", FileOwner{State: OwnerLive}},
		{"/of/the/ended", removedID, "", prod(OwnerEnded, "web")},
		{"/of/the/removed", removedID + 1, "", FileOwner{State: OwnerGone}},
		{"/never/written", 0, "", FileOwner{State: OwnerNone}},
	} {
		tt.want.Path, tt.want.CgroupID, tt.want.Cgroup = tt.path, tt.owner, tt.cgroup
		paths, owners, want = append(paths, tt.path), append(owners, writeback.Owner{Cgroup: tt.owner}), append(want, tt.want)
	}
	got, err := FileOwners(tree, paths, owners)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v; -want +got:\n%s", err, d)
	}
}
