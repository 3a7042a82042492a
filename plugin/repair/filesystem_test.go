package repair

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// TestOnLimitedAbove verifies that a limit on a disk throttles the filesystem of a logical volume on its
// partition as well.
func TestOnLimitedAbove(t *testing.T) {
	link := func(to string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(to), Mode: os.ModeSymlink} }
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }
	sys := fstest.MapFS{
		"devices/sda/dev":                  text("8:0"),
		"devices/sda/sda2/dev":             text("8:2"),
		"devices/sda/sda2/partition":       text("2"),
		"devices/virtual/dm-0/dev":         text("253:0"),
		"devices/virtual/dm-0/slaves/sda2": link("../../../sda/sda2"),
		"devices/sdb/dev":                  text("8:16"),
		"block/sda":                        link("../devices/sda"),
		"block/sdb":                        link("../devices/sdb"),
		"block/dm-0":                       link("../devices/virtual/dm-0"),
		"dev/block/8:0":                    link("../../devices/sda"),
		"dev/block/8:2":                    link("../../devices/sda/sda2"),
		"dev/block/8:16":                   link("../../devices/sdb"),
		"dev/block/253:0":                  link("../../devices/virtual/dm-0"),
		"devices/virtual/dm-0/dm/name":     text("vg-data"),
	}
	table := filepath.Join(t.TempDir(), "mountinfo")
	mounts := "1 0 8:16 / / rw - ext4 /dev/sdb rw\n2 1 253:0 / /mnt/lv rw - xfs /dev/mapper/vg-data rw\n"
	if err := os.WriteFile(table, []byte(mounts), 0o600); err != nil {
		t.Fatal(err)
	}
	storage, err := storage.Open(storage.Config{Sys: sys, Mountinfo: table, HostRoot: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer storage.Close()
	sda, sdb, dm := blkio.Dev{Major: 8}, blkio.Dev{Major: 8, Minor: 16}, blkio.Dev{Major: 253}
	for limited, want := range map[blkio.Dev]blkio.Dev{sda: dm, dm: dm, sdb: sdb} {
		got, err := onLimited(t.Context(), storage, map[blkio.Dev]bool{limited: true})
		if devs := slices.Collect(maps.Keys(got)); err != nil || !slices.Equal(devs, []blkio.Dev{want}) {
			t.Errorf("a limit on %v concerns %v (%v), want %v", limited, devs, err, want)
		}
		if fs := got[dm]; fs != nil && !slices.Equal(fs.disks, []blkio.Dev{dm, sda}) {
			t.Errorf("the disks of the logical volume are %v", fs.disks)
		}
	}
}
