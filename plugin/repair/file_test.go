package repair

import (
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/repair/filestate"
)

// TestReportedStates verifies the names of states in reports and metrics, which users know.
func TestReportedStates(t *testing.T) {
	for s, want := range map[filestate.State]State{
		filestate.Right:       StateRight,
		filestate.Waiting:     StateWaiting,
		filestate.Interrupted: StateWaiting,
		filestate.Repairing:   StateRepairing,
		filestate.Contested:   StateContested,
		filestate.Failed:      StateFailed,
	} {
		if got := reported(s); got != want {
			t.Errorf("%v is reported as %q, want %q", s, got, want)
		}
	}
}

// TestLedgerInterrupted verifies that a file counts as moved if the kernel moves it while its writes are too
// few to choose an owner. It does not count if it moves while repair is off.
func TestLedgerInterrupted(t *testing.T) {
	for _, tt := range []struct {
		name  string
		pause bool
		owner domain // in the end
		moves int
	}{
		{"moved", false, a, 1},
		{"moved while repair is off", true, a, 0},
		{"not moved", false, x, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStory()
			s.writes(a, a, x, 64)
			s.want(t, decided{move, "a", StateRepairing})
			s.passes(10 * halfLife) // of 64 KiB next to nothing is recent
			s.writes(a, a, x, 0)
			s.want(t, decided{State: StateWaiting})
			f := s.files[writeback.Inode{Number: 1}]
			if got := f.state.State(); got != filestate.Interrupted {
				t.Fatalf("state %v", got)
			}
			if tt.pause {
				s.pause(s.now)
			}
			s.admit = false
			s.writes(a, a, tt.owner, 64)
			s.decides()
			if got := len(s.takeMoved()); got != tt.moves || f.history.moves != tt.moves {
				t.Errorf("%d arrivals, %d moves, want %d", got, f.history.moves, tt.moves)
			}
		})
	}
}

// TestRest verifies that rests double up to the longest. The next rest is short again only after a file has
// stayed for as long as it rested.
func TestRest(t *testing.T) {
	now := time.Unix(1000, 0)
	var r rest
	if r.lasts(now) {
		t.Error("a new file rests")
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		r.begin(now)
		if want *= time.Second; r.took != want || !r.lasts(now.Add(want-1)) || r.lasts(now.Add(want)) {
			t.Errorf("a rest of %v until %v, want %v", r.took, r.until, want)
		}
	}
	end := r.until.Add(r.took)
	if r.ownerKept(end); r.took != maxRest {
		t.Errorf("the next rest doubles %v", r.took)
	}
	if r.ownerKept(end.Add(1)); r.took != 0 {
		t.Errorf("the next rest doubles %v", r.took)
	}
}

// TestAttemptIsOver verifies that a repair is given up only after its time and its passes:
// a writer that waits long for a sync has few passes.
func TestAttemptIsOver(t *testing.T) {
	began := time.Unix(1000, 0)
	for _, tt := range []struct {
		passes int
		after  time.Duration
		want   bool
	}{
		{minPasses, maxRepairTime, false},
		{minPasses, maxRepairTime + 1, true},
		{minPasses - 1, time.Hour, false},
		{1000, time.Second, false},
	} {
		var r attempt
		r.begin(began, 9)
		r.passes = tt.passes
		if got := r.isOver(began.Add(tt.after)); got != tt.want {
			t.Errorf("%d passes in %v: over is %v", tt.passes, tt.after, got)
		}
	}
}

// TestDropsFollow verifies that leftovers are dropped only of files whose pages were
// dropped before the move.
func TestDropsFollow(t *testing.T) {
	now := time.Unix(1000, 0)
	d := drops{offset: 4096}
	if d.follow(now); d != (drops{offset: 4096}) || d.isDue(now.Add(time.Hour)) {
		t.Errorf("%+v of a file without drops", d)
	}
	d.passes = 3
	d.follow(now)
	if want := (drops{leftovers: leftoverPasses, leftoversAt: now.Add(leftoverEvery), offset: 4096}); d != want {
		t.Errorf("%+v, want %+v", d, want)
	}
	if d.isDue(now.Add(leftoverEvery-1)) || !d.isDue(now.Add(leftoverEvery)) {
		t.Error("the leftovers are due at another time")
	}
}

// TestShareSpans verifies which part of a file passes work on: the part with the writes since the last pass, or
// with all writes.
func TestShareSpans(t *testing.T) {
	var s share
	at := func(first, last, bytes uint64) {
		s.add(time.Unix(1000, 0), &sample{writer: member{id: 7}, span: span{first, last}, bytes: bytes})
	}
	at(4096, 8192, 4096)
	at(1<<20, 1<<20, 4096)
	if want := (span{4096, 1 << 20}); s.fresh.span != want || s.ever != want {
		t.Errorf("since the last pass %+v, ever %+v, want %+v", s.fresh.span, s.ever, want)
	}
	s.fresh = fresh{}
	at(1<<30, 1<<30, 4096)
	if s.fresh.span != (span{1 << 30, 1 << 30}) || s.ever != (span{4096, 1 << 30}) {
		t.Errorf("after a pass %+v, ever %+v", s.fresh.span, s.ever)
	}
	// Only the last writers are remembered, each once.
	for id := range uint64(2 * maxWriters) {
		for range 2 {
			s.add(time.Unix(1000, 0), &sample{writer: member{id: id}, bytes: 1})
		}
	}
	if len(s.writers) != maxWriters || s.writers[maxWriters-1] != 2*maxWriters-1 {
		t.Errorf("writers %v", s.writers)
	}
}

// TestOffsets verifies that offsets for system calls are not negative, and leave room for
// the pages around them.
func TestOffsets(t *testing.T) {
	for _, tt := range []struct {
		span
		wantFirst, wantLast int64
	}{
		{span{}, 0, 0},
		{span{4096, 8192}, 4096, 8192},
		{span{8192, 4096}, 4096, 4096},
		{span{0, 1<<64 - 1}, 0, maxOffset},
		{span{1<<64 - 1, 1<<64 - 1}, maxOffset, maxOffset},
		{span{1 << 63, 1<<63 + 4096}, maxOffset, maxOffset},
	} {
		first, last := tt.offsets()
		if first != tt.wantFirst || last != tt.wantLast {
			t.Errorf("%+v: %d to %d, want %d to %d", tt.span, first, last, tt.wantFirst, tt.wantLast)
		}
		if v := (&visit{first: first, last: last}); first+v.window() < first {
			t.Errorf("%+v: its window ends before its begin", tt.span)
		}
	}
}
