package inspect

import (
	"slices"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

func TestAbove(t *testing.T) {
	device := func(name string, kind storage.DeviceKind, parents ...string) storage.BlockDevice {
		d := storage.BlockDevice{DiskInfo: storage.DiskInfo{Disk: blkio.Disk{Name: name}}, Kind: kind}
		for _, p := range parents {
			d.Parents = append(d.Parents, blkio.Disk{Name: p})
		}
		return d
	}
	stack := []storage.BlockDevice{
		device("dm-0", storage.KindLVM, "dm-1"), device("dm-1", storage.KindCrypt, "sda2"),
		device("sda", storage.KindDisk), device("sda1", storage.KindPartition, "sda"), device("sda2", storage.KindPartition, "sda"),
		device("sdb", storage.KindDisk), device("md0", "raid1", "sda1", "sdb"),
	}
	for disk, want := range map[string][]string{
		"sda": {"dm-0", "dm-1", "md0"}, "sdb": {"md0"}, "dm-1": {"dm-0"}, "dm-0": nil, "md0": nil,
	} {
		if got := above(stack, disk); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", disk, got, want)
		}
	}
}
