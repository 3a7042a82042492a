package repair

import (
	"slices"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// TestSlices verifies that the dirty bytes are cut into as many slices as votes are missing, if there are
// enough of them. There are never more slices than a pass works on.
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
		{"a page", fast, 4 << 10, 0, minSlice},
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

// TestSlicesReach verifies that slices reach from the first written page to the last one, and end there, also
// at the largest offset of a file.
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

// TestDropWithinAllowance verifies that a visit writes out no more than its pod may. The next visit continues
// where it has ended.
func TestDropWithinAllowance(t *testing.T) {
	const size, mib = 8 << 20, 1 << 20
	f := newModelCache().add(writeback.Inode{Number: 1}, 9)
	now := time.Now()
	early := newBudget(time.Hour) // so that hardly any comes in meanwhile
	early.set(now, mib/time.Hour.Seconds())
	w := &worker{budgets: budgets{early: early}, account: "a"}
	s := &session{visit: &visit{last: size - 1, fresh: size, drops: true}, worker: w, file: f}
	f.writes(9, 0, size/writeback.PageSize())
	if err := s.drop(); err != nil {
		t.Fatal(err)
	}
	if s.written == 0 || s.written > mib || f.written*writeback.PageSize() != int64(s.written) {
		t.Errorf("%d bytes were written out", s.written)
	}
	if s.outcome.dropAt == 0 || s.outcome.dropAt > mib || s.length != s.outcome.dropAt || s.from != 0 {
		t.Errorf("the pass continues at %d, with rounds over %d bytes from %d on, want at most 1 MiB from 0 on", s.outcome.dropAt, s.length, s.from)
	}
	early.set(now, 2*mib/time.Hour.Seconds())
	early.flow(time.Now().Add(time.Hour))
	next := &session{visit: &visit{last: size - 1, fresh: size, drops: true, dropAt: s.outcome.dropAt}, worker: w, file: f}
	if err := next.drop(); err != nil {
		t.Fatal(err)
	}
	if next.from != s.outcome.dropAt {
		t.Errorf("the next pass continued at %d, want %d", next.from, s.outcome.dropAt)
	}
	// Of a pod that may not write out anything nothing is dropped.
	early.spend(time.Now().Add(time.Hour), "a", 100*mib)
	none := &session{visit: &visit{last: size - 1, fresh: size, drops: true}, worker: w, file: f, active: true}
	f.writes(9, 0, size/writeback.PageSize())
	if err := none.drop(); err != nil || none.written > 0 && none.active {
		t.Errorf("%v, %d bytes were written out", err, none.written)
	}
}
