package blkio

import (
	"fmt"
	"testing"
)

// TestWeightOn verifies that the weight of a device counts before the default one.
func TestWeightOn(t *testing.T) {
	w := Weights{Default: 100, Devices: map[Dev]uint32{{8, 16}: 200, {8, 32}: 100}}
	for dev, want := range map[Dev]uint32{{8, 16}: 200, {8, 32}: 100, {8, 0}: 100, {16, 8}: 100} {
		if got := w.On(dev); got != want {
			t.Errorf("%v has %d, want %d", dev, got, want)
		}
	}
	if got := (Weights{Default: 50}).On(Dev{8, 16}); got != 50 {
		t.Errorf("without devices: %d", got)
	}
}

// TestWeightWith verifies that a changed copy leaves the original as it was.
func TestWeightWith(t *testing.T) {
	of := func(devices map[Dev]uint32) Weights { return Weights{Default: 300, Devices: devices} }
	a, b := Dev{8, 0}, Dev{8, 16}
	for _, tt := range []struct {
		from   Weights
		dev    Dev
		weight uint32
		want   Weights
	}{
		{of(nil), a, 1, of(map[Dev]uint32{a: 1})},
		{of(nil), a, 0, of(nil)},
		{of(map[Dev]uint32{a: 1}), a, 10000, of(map[Dev]uint32{a: 10000})},
		{of(map[Dev]uint32{a: 1}), b, 300, of(map[Dev]uint32{a: 1, b: 300})}, // the default, but of its own
		{of(map[Dev]uint32{a: 1, b: 2}), a, 0, of(map[Dev]uint32{b: 2})},
		{of(map[Dev]uint32{a: 1}), b, 0, of(map[Dev]uint32{a: 1})},
	} {
		before := tt.from.String()
		got := tt.from.With(tt.dev, tt.weight)
		if !got.Equal(tt.want) || tt.from.String() != before {
			t.Errorf("%v = %d: got %q, want %q, and the original %q is %q", tt.dev, tt.weight, got, tt.want, before, tt.from)
		}
		if again, err := ParseIOWeight(got.String()); err != nil || !again.Equal(got) {
			t.Errorf("%q is read as %q, %v", got, again, err)
		}
	}
	w := of(map[Dev]uint32{a: 1})
	for _, other := range []Weights{{}, of(nil), of(map[Dev]uint32{a: 2}), of(map[Dev]uint32{b: 1}), {Default: 1, Devices: w.Devices}} {
		if w.Equal(other) || other.Equal(w) {
			t.Errorf("%q equals %q", w, other)
		}
	}
}

// TestDiskNames verifies that the order of the disks stays, and that two with one name stay two.
func TestDiskNames(t *testing.T) {
	disks := []Disk{{Dev{8, 16}, "sdb"}, {Dev{8, 0}, "sda"}, UnknownDisk(1, "the disk of a claim"), {Dev{8, 17}, "sdb"}}
	if got := fmt.Sprintf("%q", DiskNames(disks)); got != `["sdb" "sda" "the disk of a claim" "sdb"]` {
		t.Error(got)
	}
	if got := DiskNames(nil); got != nil {
		t.Errorf("of no disks: %q", got)
	}
}
