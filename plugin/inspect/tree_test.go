package inspect

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

// Without those that are marked so, each thing is in the tree once.
func TestTreeOnce(t *testing.T) {
	full, again := map[string]int{}, map[string]int{}
	var visit func(list []*Node)
	visit = func(list []*Node) {
		for _, n := range list {
			id := n.Kind + " " + n.Name + " " + n.Dev
			if n.Again {
				again[id]++
				if n.Children != nil || n.Max != nil {
					t.Errorf("%s is told twice", id)
				}
				continue
			}
			full[id]++
			visit(n.Children)
		}
	}
	root := t.TempDir()
	fakenode.WriteFiles(t, root, map[string]string{"cg/cgroup.controllers": "io\n"})
	sys := fakenode.Sysfs()
	h := Host{
		Cgroups: fakenode.OpenCgroups(t, filepath.Join(root, "cg")), Storage: fakenode.OpenStorage(t, sys, root, fakenode.Mounts),
		Sysfs: storage.NewSysfs(sys), Root: hostfs.Root(root), KubeletRoot: kubeletRoot, OrphanGrace: DefaultOrphanGrace,
	}
	r, err := h.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	visit(r.Devices)
	for id, n := range full {
		if n != 1 {
			t.Errorf("%s is there %d times", id, n)
		}
	}
	want := map[string]int{
		"lvm dm-0 253:0": 1, "raid1 md0 9:0": 1, "multipath dm-2 253:2": 1, "filesystem btrfs 0:45": 1,
	}
	if d := cmp.Diff(want, again); d != "" {
		t.Errorf("again, -want +got:\n%s", d)
	}
}

func TestLatency(t *testing.T) {
	disk := storage.DiskInfo{}
	stacked := storage.DiskInfo{Below: []blkio.Disk{{Name: "sda"}, {Name: "sdb"}}}
	for _, tt := range []struct {
		kernel blkio.Tri
		disk   storage.DiskInfo
		want   Support
	}{
		{blkio.Yes, disk, Support{OK: blkio.Yes}},
		{blkio.No, disk, Support{blkio.No, "the kernel has no io.latency (CONFIG_BLK_CGROUP_IOLATENCY)"}},
		{blkio.Unknown, disk, Support{blkio.Unknown, noIOCgroup}},
		{blkio.Yes, stacked, Support{blkio.No, "io.latency works on the physical disks below"}},
	} {
		if got := latencyOf(cgroupfs.Features{IOLatency: tt.kernel}, tt.disk); got != tt.want {
			t.Errorf("%v: got %v, want %v", tt.kernel, got, tt.want)
		}
	}
}
