package main

import (
	"slices"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

func TestAbove(t *testing.T) {
	device := func(name string, kind blkio.DeviceKind, parents ...string) blkio.BlockDevice {
		d := blkio.BlockDevice{DiskInfo: blkio.DiskInfo{Disk: blkio.Disk{Name: name}}, Kind: kind}
		for _, p := range parents {
			d.Parents = append(d.Parents, blkio.Disk{Name: p})
		}
		return d
	}
	stack := []blkio.BlockDevice{
		device("dm-0", blkio.KindLVM, "dm-1"), device("dm-1", blkio.KindCrypt, "sda2"),
		device("sda", blkio.KindDisk), device("sda1", blkio.KindPartition, "sda"), device("sda2", blkio.KindPartition, "sda"),
		device("sdb", blkio.KindDisk), device("md0", "raid1", "sda1", "sdb"),
	}
	for disk, want := range map[string][]string{
		"sda": {"dm-0", "dm-1", "md0"}, "sdb": {"md0"}, "dm-1": {"dm-0"}, "dm-0": nil, "md0": nil,
	} {
		if got := above(stack, disk); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", disk, got, want)
		}
	}
}
