package repair

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// TestUnderwayDoes verifies that a pass continues for the work that it does already, and ends for any other
// work.
func TestUnderwayDoes(t *testing.T) {
	one, other := writeback.Inode{Number: 1}, writeback.Inode{Number: 2}
	u := newUnderway(time.Now(), passKey{}, testFS, []visit{
		{Inode: one, work: move, first: 1 << 20, last: 2 << 20},
		{Inode: other, work: move, drops: true},
	})
	for _, tt := range []struct {
		name string
		in   writeback.Inode
		work work
		to   fresh
		want bool
	}{
		{"more of it", one, move, fresh{span{1 << 20, 3 << 20}, 9, 0}, true},
		{"before it", one, move, fresh{span{0, 3 << 20}, 9, 0}, false},
		{"far behind it", one, move, fresh{span{1 << 20, 1 << 30}, 9, 0}, false},
		{"charged to others", one, move, fresh{span{1 << 20, 1 << 20}, 9, 9}, false},
		{"charged to others, which it drops", other, move, fresh{span{}, 9, 9}, true},
		{"to be dropped", other, drop, fresh{span{}, 9, 9}, false},
		{"another file", writeback.Inode{Number: 3}, move, fresh{span{}, 9, 0}, false},
	} {
		if got := u.does(&task{&file{Inode: tt.in}, tt.work, &share{fresh: tt.to}}); got != tt.want {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
}

// TestUnderwayHangs verifies that a pass that waits does not count as hanging.
func TestUnderwayHangs(t *testing.T) {
	began := time.Now().Add(-time.Hour)
	u := newUnderway(began, passKey{}, testFS, nil)
	if u.hangs(began.Add(hangs)) || !u.hangs(began.Add(hangs+1)) || !u.hangs(time.Now()) {
		t.Error("a pass has to count as hanging after some seconds, and not before")
	}
	if u.alive(); u.hangs(time.Now()) {
		t.Error("a pass that has just reported counts as hanging")
	}
}

// TestStays verifies that a pass waits for the next write to its file while pages of it are under writeback. It
// does not wait if a file has a result, or there is other work.
func TestStays(t *testing.T) {
	synctest.Test(t, testStays)
}

func testStays(t *testing.T) {
	f := newModelCache().add(writeback.Inode{Number: 1}, 9)
	goes := func() *session { return &session{visit: &visit{}, file: f, active: true} }
	ended := &session{visit: &visit{}, file: f}
	for _, tt := range []struct {
		name     string
		sessions []*session
		notify   func(u *underway)
		want     bool
	}{
		{"written to", []*session{goes()}, func(u *underway) { reminder.Wake(u.dirtied) }, true},
		{"something else", []*session{goes()}, func(u *underway) { reminder.Wake(u.stop) }, false},
		{"one has ended", []*session{goes(), ended}, func(u *underway) { reminder.Wake(u.dirtied) }, false},
		{"nothing on its way", []*session{goes()}, func(*underway) {}, false},
	} {
		u := newUnderway(time.Time{}, passKey{}, testFS, nil)
		w := &worker{dirtied: u.dirtied, stop: u.stop, reportAlive: u.alive}
		go func() {
			time.Sleep(waitPoll / 2)
			tt.notify(u)
		}()
		if got := w.awaitWrite(tt.sessions); got != tt.want {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
	u := newUnderway(time.Time{}, passKey{}, testFS, nil)
	reminder.Wake(u.dirtied)
	w := &worker{dirtied: u.dirtied, stop: u.stop, reportAlive: u.alive}
	if w.awaitWrite([]*session{goes()}) {
		t.Error("a write from before the wait ended it")
	}
}
