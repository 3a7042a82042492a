package inventory

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// tower is a Storage with devices on others, by their major numbers: 8 is a disk of its own.
type tower struct{ Storage }

var (
	sda, sdb  = blkio.Disk{Dev: blkio.Dev{Major: 8}, Name: "sda"}, blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 16}, Name: "sdb"}
	md        = blkio.Disk{Dev: blkio.Dev{Major: 9}, Name: "md0"}               // of sda and sdb
	onMD      = blkio.Disk{Dev: blkio.Dev{Major: 7}, Name: "loop0"}             // with a file on md
	onLoop    = blkio.Disk{Dev: blkio.Dev{Major: 7, Minor: 1}, Name: "loop1"}   // with a file on onMD
	lostLoop  = blkio.Disk{Dev: blkio.Dev{Major: 7, Minor: 2}, Name: "loop2"}   // with a file that is not found
	cryptLoop = blkio.Disk{Dev: blkio.Dev{Major: 253}, Name: "dm-0"}            // of onMD and sda
	lostLV    = blkio.Disk{Dev: blkio.Dev{Major: 253, Minor: 1}, Name: "dm-1"}  // with members that cannot be read
	otherLV   = blkio.Disk{Dev: blkio.Dev{Major: 253, Minor: 2}, Name: "dm-2"}  // of sdb
	zram      = blkio.Disk{Dev: blkio.Dev{Major: 252, Minor: 0}, Name: "zram0"} // in memory
)

func (tower) Physical(dev blkio.Dev) ([]blkio.Disk, error) {
	switch dev {
	case md.Dev:
		return []blkio.Disk{sda, sdb}, nil
	case cryptLoop.Dev:
		return []blkio.Disk{onMD, sda}, nil
	case otherLV.Dev:
		return []blkio.Disk{sdb}, nil
	case lostLV.Dev:
		return nil, errors.New("no such device")
	}
	for _, d := range []blkio.Disk{sda, sdb, onMD, onLoop, lostLoop, zram} {
		if d.Dev == dev {
			return []blkio.Disk{d}, nil
		}
	}
	return nil, nil
}

func (tower) Under(_ context.Context, dev blkio.Dev) []blkio.Disk {
	switch dev {
	case onMD.Dev:
		return []blkio.Disk{sda, sdb, md}
	case onLoop.Dev:
		return []blkio.Disk{onMD, sda, sdb, md}
	}
	return nil
}

// TestLowest verifies that the physical disks below stacks of devices are found, also below loop devices, and that a device whose
// disks are not found counts as a disk of its own.
func TestLowest(t *testing.T) {
	both := []blkio.Disk{sda, sdb}
	for _, d := range []blkio.Disk{sda, sdb, md, onMD, onLoop, lostLoop, cryptLoop, lostLV, otherLV, zram} {
		want := map[string][]blkio.Disk{"md0": both, "loop0": both, "loop1": both, "dm-0": both, "dm-2": {sdb}}[d.Name]
		if diff := cmp.Diff(want, Lowest(tower{}, []blkio.Dev{d.Dev})[d.Dev]); diff != "" {
			t.Errorf("%s: -want +got:\n%s", d.Name, diff)
		}
	}
}

// TestFindLowest verifies that FindLowest finds the disks below all disks of a container, and replaces those of an earlier call.
func TestFindLowest(t *testing.T) {
	c := Container{Facts: policy.Container{
		Rootfs: on(sda), Undeclared: []blkio.Disk{otherLV}, Stack: policy.Stack{Lowest: map[blkio.Dev][]blkio.Disk{sda.Dev: {sdb}}},
		Mounts: []policy.Mount{{Backing: new(on(sda))}, {Backing: new(on(sda)), Below: []policy.Below{{Backing: new(on(md))}}}},
	}}
	f := Finder{Storage: tower{}}
	f.FindLowest(&c)
	if diff := cmp.Diff(map[blkio.Dev][]blkio.Disk{md.Dev: {sda, sdb}, otherLV.Dev: {sdb}}, c.Facts.Lowest); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	c.Facts.Undeclared, c.Facts.Mounts = nil, nil
	if f.FindLowest(&c); c.Facts.Lowest == nil || len(c.Facts.Lowest) > 0 {
		t.Errorf("a plain disk is below others: %v", c.Facts.Lowest)
	}
}
