package iocost

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// calibrated returns the records of disks that all have their own model and QOS, as after a
// calibration of each, with numbers of NVMe disks.
func calibrated(count int) map[blkio.Dev]owned {
	out := make(map[blkio.Dev]owned, count)
	for i := range uint64(count) {
		m := blkio.CostModel{Rbps: 6<<30 + i, RSeqIOPS: 900000 + i, RRandIOPS: 800000 + i, Wbps: 4<<30 + i, WSeqIOPS: 700000 + i, WRandIOPS: 600000 + i}
		s := State{Setup: Setup{Model: &m, QOS: qosA, Identity: fmt.Sprint("diskseq ", 1000+i)}}
		out[blkio.Dev{Major: 259, Minor: 1000 + uint32(i)}] = s.lines().short()
	}
	return out
}

// most returns the largest number of disks that fit.
func most(t *testing.T, fits func(data []byte, err error) bool) int {
	t.Helper()
	for count := 10; ; count += 10 {
		if data, err := formatRecord(calibrated(count), maxRecord); !fits(data, err) {
			return count - 10
		}
	}
}

// TestRoom measures for how many disks the attribute has room. The kernel takes 64 KiB.
func TestRoom(t *testing.T) {
	if maxRecord >= 64<<10 {
		t.Error("the kernel takes less")
	}
	all := most(t, func(data []byte, err error) bool { return err == nil && len(data) <= maxRecord })
	t.Logf("%d disks", all)
	if all < 800 {
		t.Errorf("room for %d disks", all)
	}
	if data, err := formatRecord(calibrated(all+10), maxRecord); data != nil || !errors.Is(err, ErrNoRoom) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

// TestRecordForms verifies that a record is read back.
func TestRecordForms(t *testing.T) {
	want := map[blkio.Dev]owned{
		vda.Dev: owned{QOS: "enable=1 ctrl=auto"}.short(), {Major: 8}: owned{Model: "ctrl=user rbps=7", QOS: "enable=1 ctrl=auto", Disk: "7"}.short(),
	}
	data, err := formatRecord(want, maxRecord)
	if err != nil || strings.Contains(string(data), "ctrl=") {
		t.Fatalf("%s: %v", data, err)
	}
	if got, err := parseRecord(data); err != nil || !cmp.Equal(want, got) {
		t.Errorf("%v, -want +got:\n%s", err, cmp.Diff(want, got))
	}
	if isText("ctrl=user rbps=1000000", "ctrl=user rbps=1000001") || !isText("", "") || isText("", "x") {
		t.Error("isText takes different texts for equal, or no text for another one")
	}
}

// FuzzFingerprint verifies that the fingerprint of a fingerprint is itself.
func FuzzFingerprint(f *testing.F) {
	f.Add("enable=1 ctrl=auto")
	f.Add("")
	f.Add("#1f3a9c2b")
	f.Fuzz(func(t *testing.T, text string) {
		if short := fingerprint(text); fingerprint(short) != short || !isText(short, text) {
			t.Errorf("%q becomes %q", text, short)
		}
	})
}

// TestNoRoom verifies that io.cost is not enabled on the disks for which the record has no room. Nothing
// is written again for the others, and all is removed in the end.
func TestNoRoom(t *testing.T) {
	k := newKernel(t)
	var wants []Setup
	for i := range uint32(8) {
		disk := blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 16 * i}, Name: fmt.Sprintf("vd%c", 'a'+i)}
		wants = append(wants, Setup{Disk: disk, Enabled: true, Model: modelA, QOS: qosA, Identity: fmt.Sprint("diskseq ", 100+i)})
	}
	apply := func() (enabled int) {
		a, err := read(k.tree, cgroupfs.Cgroup.Write, nil)
		if err != nil {
			t.Fatal(err)
		}
		a.room = 500 // for some of the disks
		for _, want := range wants {
			s := a.apply(want, false)
			if s.Works {
				enabled++
			} else if !errors.Is(s.Err, ErrNoRoom) {
				t.Errorf("%s: %v", s.Disk.Name, s.Err)
			}
		}
		return enabled
	}
	enabled := apply()
	if enabled < 5 || enabled == len(wants) || len(k.attribute()) > 500 || strings.Contains(k.attribute(), "rbps=") {
		t.Errorf("enabled on %d disks, the attribute is %s", enabled, k.attribute())
	}
	if len(k.writes) != 2*enabled {
		t.Errorf("wrote %q", k.writes)
	}
	k.writes = nil
	if again := apply(); again != enabled {
		t.Errorf("enabled on %d disks, then on %d", enabled, again)
	}
	k.want()
	states := k.apply(wants[:enabled]...)
	for _, s := range states {
		if len(s.Foreign) > 0 {
			t.Errorf("%s: %q are taken for another program's", s.Disk.Name, s.Foreign)
		}
	}
	k.want()
	k.apply()
	if len(k.writes) != 2*enabled || k.attribute() != "" {
		t.Errorf("removed with %q, the attribute is %s", k.writes, k.attribute())
	}
}
