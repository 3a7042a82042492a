package storage

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

func TestUnder(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	n.sys.add(virtual+"loop2", "7:2", "size=2048", "loop/backing_file=/srv/btrfs2/disk.img (deleted)")
	n.sys.add(virtual+"loop3", "7:3", "size=2048", "loop/backing_file=/run/disk.img")
	n.sys.add(virtual+"loop4", "7:4", "size=2048", "loop/backing_file=/srv/btrfs/a:b.img")
	n.sys.MapFS["devices/"+virtual+"zram0/backing_dev"] = &fstest.MapFile{Data: []byte("none\n")}
	n.sys.add(virtual+"zram1", "252:1", "size=2048", "backing_dev=/dev/sdb1")
	// A circle, which the kernel never makes.
	n.sys.add(virtual+"md7", "9:7", "size=2048")
	n.sys.add(virtual+"md8", "9:8", "size=2048")
	n.sys.link("devices/"+virtual+"md7/slaves/md8", "../../md8")
	n.sys.link("devices/"+virtual+"md8/slaves/md7", "../../md7")
	lv := blkio.Disk{Dev: blkio.Dev{Major: 253, Minor: 0}, Name: "dm-0"}
	for name, tt := range map[string]struct {
		of   blkio.Dev
		want []blkio.Disk
	}{
		"a disk":                       {sda.Dev, []blkio.Disk{}},
		"a volume":                     {lv.Dev, []blkio.Disk{sdb, sdd}},
		"a device on that":             {blkio.Dev{Major: 253, Minor: 1}, []blkio.Disk{sdb, sdd, lv}},
		"a loop device":                {blkio.Dev{Major: 7, Minor: 0}, []blkio.Disk{sda}},
		"of a file on a stack":         {blkio.Dev{Major: 7, Minor: 2}, []blkio.Disk{sdb, sdd, lv, {Dev: blkio.Dev{Major: 253, Minor: 1}, Name: "dm-1"}}},
		"of a file in memory":          {blkio.Dev{Major: 7, Minor: 3}, []blkio.Disk{}},
		"of a file on several disks":   {blkio.Dev{Major: 7, Minor: 4}, []blkio.Disk{sda, sdc}},
		"zram":                         {blkio.Dev{Major: 252, Minor: 0}, []blkio.Disk{}},
		"zram that writes back":        {blkio.Dev{Major: 252, Minor: 1}, []blkio.Disk{sdb}},
		"a disk that is not there":     {blkio.Dev{Major: 65, Minor: 16}, []blkio.Disk{}},
		"NVMe, whose path has no line": {blkio.Dev{Major: 259, Minor: 1}, []blkio.Disk{}},
		"a circle":                     {blkio.Dev{Major: 9, Minor: 7}, []blkio.Disk{{Dev: blkio.Dev{Major: 9, Minor: 7}, Name: "md7"}, {Dev: blkio.Dev{Major: 9, Minor: 8}, Name: "md8"}}},
	} {
		if diff := cmp.Diff(tt.want, n.Under(t.Context(), tt.of)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func TestSwapDisks(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	n.sys.add(virtual+"zram1", "252:1", "size=2048")
	swaps := func(text string) ([]blkio.Disk, error) {
		n.cfg.Swaps = filepath.Join(t.TempDir(), "swaps")
		if err := os.WriteFile(n.cfg.Swaps, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return n.SwapDisks(t.Context())
	}
	got, err := swaps(swapsHeader +
		"/dev/sdb1 partition 8 0 -2\n/dev/zram1 partition 8 0 -3\n/dev/gone partition 8 0 -4\n" +
		"/srv/lv/swap file 8 0 -5\n/srv/lv/swap2 file 8 0 -6\n")
	checkError(t, err, "")
	if diff := cmp.Diff([]blkio.Disk{sdb, {Dev: blkio.Dev{Major: 252, Minor: 1}, Name: "zram1"}, {Dev: blkio.Dev{Major: 253, Minor: 0}, Name: "dm-0"}}, got); diff != "" {
		t.Error(diff)
	}
	_, err = swaps(swapsHeader + "/dev/a x 1\n")
	checkError(t, err, "parse swaps, line 2: 3 fields")
	n.cfg.Swaps = t.TempDir()
	_, err = n.SwapDisks(t.Context())
	checkError(t, err, "read swaps: read "+n.cfg.Swaps+": is a directory")
	for _, none := range []string{"", "/nowhere/swaps"} {
		n.cfg.Swaps = none
		if got, err := n.SwapDisks(t.Context()); len(got) > 0 || err != nil {
			t.Errorf("from %q: %v, %v", none, got, err)
		}
	}
}

func TestMountedDisks(t *testing.T) {
	got := newFakeNode(t, nodeMounts).MountedDisks()
	want := map[blkio.Dev]bool{
		sda.Dev: true,                // of its partition, and bcachefs
		sdb.Dev: true,                // of its partition
		sdc.Dev: true, sdd.Dev: true, // btrfs, bcachefs
		{Major: 253, Minor: 0}: true, {Major: 253, Minor: 1}: true, {Major: 259, Minor: 1}: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
