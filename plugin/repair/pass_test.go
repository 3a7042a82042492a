package repair

import (
	"slices"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// TestSlices: what is dirty is cut into as many slices as votes are
// missing, where there is enough of it, and never into more than a pass looks at.
func TestSlices(t *testing.T) {
	const mib = 1 << 20
	fast := writeback.Owner{Bandwidth: 25600} // 100 MiB/s
	slow := writeback.Owner{Bandwidth: 16}
	long := fast
	long.Average = 8000 // rounds took a second: short ones do not count at first
	for _, tt := range []struct {
		name  string
		owner writeback.Owner
		dirty uint64
		last  int64
		want  int64
	}{
		{"enough of it", fast, 4 * mib, 4 * mib, slice},
		{"little of it", fast, 256 << 10, 256 << 10, 16 << 10},
		{"a page", fast, 4 << 10, 0, smallest},
		{"a slow disk: few rounds are enough", slow, 256 << 10, 256 << 10, slice},
		{"short rounds do not count", long, 1 * mib, 1 * mib, 16 << 10},
		{"all over a large file", fast, 4 * mib, 1 << 30, 16 * mib},
	} {
		v := &visit{first: 0, last: tt.last}
		got := sliceFor(v, tt.owner, tt.dirty)
		if got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
		if tt.last/got >= maxSlices {
			t.Errorf("%s: %d slices", tt.name, tt.last/got)
		}
	}
}

// TestSlicesReach: slices reach from the first page that was written to the last,
// and end there, also at the end of what a file can have.
func TestSlicesReach(t *testing.T) {
	for _, tt := range []struct {
		first, last int64
		want        []int64
	}{
		{0, 0, []int64{0}},
		{0, slice - 1, []int64{0}},
		{0, slice, []int64{0, slice}},
		{slice + 5, 3 * slice, []int64{slice, 2 * slice, 3 * slice}},
		{maxOffset, maxOffset, []int64{maxOffset - maxOffset%slice}},
	} {
		got := slices.Collect((&visit{first: tt.first, last: tt.last}).slices(slice))
		if !slices.Equal(got, tt.want) {
			t.Errorf("from %d to %d: got %v, want %v", tt.first, tt.last, got, tt.want)
		}
	}
}
