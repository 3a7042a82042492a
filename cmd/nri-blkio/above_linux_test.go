package main

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// TestSharedDisks: status names the devices on each disk with a limit in force, once.
func TestSharedDisks(t *testing.T) {
	root := t.TempDir()
	if err := fakeHost(root); err != nil {
		t.Fatal(err)
	}
	a := &app{opts: options{hostRoot: root}}
	limit := func(disk, state string) statusRow { return statusRow{Disk: disk, Key: "wbps", State: state} }
	got, err := a.sharedDisks([]statusRow{
		limit("vdb", stateDrift), limit("vdb", stateOK), limit("vda", stateOK), limit("dm-0", stateOK), {Key: "weight"},
	})
	if d := cmp.Diff([]sharedDisk{{"vdb", []string{"dm-0"}}}, got); d != "" || err != nil {
		t.Errorf("%v; -want +got:\n%s", err, d)
	}
	if s := got[0].String(); s != "a limit on vdb holds for dm-0 as well, which is stored on it" {
		t.Error(s)
	}
	for name, row := range map[string]statusRow{
		"observed": limit("vdb", stateObserved), "cleared": limit("vdb", stateCleared), "of no disk": {Key: "weight", State: stateOK},
	} {
		if got, err := a.sharedDisks([]statusRow{row}); err != nil || len(got) > 0 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
