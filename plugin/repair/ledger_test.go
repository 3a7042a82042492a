package repair

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// The domains of the tests: a and b are limited, a to less; x is not.
var (
	a, b    = domain{cgroup: "a"}, domain{cgroup: "b"}
	x       = domain{}
	removed = domain{removed: 9}
)

var idOf = map[domain]uint64{a: 11, b: 12, x: 13, removed: 9}

var testFS = &filesystem{fstype: "ext4", mountpoint: "/data"}

// testLimits has limits for a and b, the smaller one for a. Removed cgroups, and those in gone, are not live.
type testLimits struct{ gone map[domain]bool }

func (l *testLimits) limited(d domain) bool { return d.cgroup != "" }
func (l *testLimits) live(d domain) bool    { return d.removed == 0 && !l.gone[d] }
func (l *testLimits) stricter(p, q domain, _ *filesystem) bool {
	return p == a && q != a || p == b && q == x
}

// story has a ledger, and writes to one file of it.
type story struct {
	*ledger
	now   time.Time
	admit bool
}

func newStory() *story {
	return &story{
		ledger: newLedger(&testLimits{}),
		now:    time.Unix(1000, 0), admit: true,
	}
}

// writes adds a sample of the writes of a domain.
func (s *story) writes(who, charged, owner domain, kib uint64) {
	s.add(s.now, &sample{
		inode: writeback.Inode{Number: 1}, fs: testFS, writer: member{who, 7}, charged: charged, owner: member{owner, idOf[owner]},
		bytes: kib << 10, span: span{0, kib << 10},
	})
}

func (s *story) passes(d time.Duration) { s.now = s.now.Add(d) }

// decided has the work that is due now, and the file's state.
type decided struct {
	Work  work
	To    string
	State State
}

func (s *story) decides() decided {
	tasks := s.decide(s.now)
	if !s.admit {
		tasks = nil
	}
	f := s.files[writeback.Inode{Number: 1}]
	if f == nil {
		return decided{}
	}
	for i := range tasks {
		s.begin(s.now, &tasks[i])
	}
	out := decided{State: reported(f.state.State())}
	if len(tasks) > 0 {
		out.Work, out.To = tasks[0].work, tasks[0].to.cgroup
	}
	return out
}

func (s *story) want(t *testing.T, want decided) {
	t.Helper()
	if d := cmp.Diff(want, s.decides()); d != "" {
		t.Fatalf("at %v: -want +got:\n%s", s.now.Sub(time.Unix(1000, 0)), d)
	}
}

// TestLedger verifies the decision for each case of a writer, an owner, and the cgroup that the pages are
// charged to.
func TestLedger(t *testing.T) {
	for _, tt := range []struct {
		name                   string
		writer, charged, owner domain
		want                   decided
	}{
		{"its own", a, a, a, decided{}},
		{"an escape by rewrite", a, x, x, decided{move, "a", StateRepairing}},
		{"an escape by append", a, a, x, decided{move, "a", StateRepairing}},
		{"an inversion", x, a, a, decided{move, "", StateRepairing}},
		{"another limited one's", a, b, b, decided{move, "a", StateRepairing}},
		{"a dead one's", a, removed, removed, decided{move, "a", StateRepairing}},
		{"its own, on others' pages", a, b, a, decided{drop, "a", StateRight}},
		{"of those without limits", x, removed, removed, decided{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStory()
			s.writes(tt.writer, tt.charged, tt.owner, 64)
			s.want(t, tt.want)
		})
	}
}

// TestLedgerLittle verifies that a file is not moved for less than a page.
func TestLedgerLittle(t *testing.T) {
	s := newStory()
	s.writes(a, x, x, 3)
	s.want(t, decided{State: StateRight})
	s.writes(a, x, x, 1)
	s.want(t, decided{move, "a", StateRepairing})
}

// TestLedgerBudget verifies that a file without a place in the budget waits for its turn, and that its repair
// does not begin.
func TestLedgerBudget(t *testing.T) {
	s := newStory()
	s.admit = false
	s.writes(a, x, x, 64)
	s.want(t, decided{State: StateWaiting})
	s.admit = true
	s.want(t, decided{move, "a", StateRepairing})
}

// TestLedgerMoved verifies that a file that has moved is counted, and rests longer each time.
func TestLedgerMoved(t *testing.T) {
	s := newStory()
	rest := time.Duration(0)
	for range 8 {
		s.writes(a, a, x, 64)
		s.want(t, decided{move, "a", StateRepairing})
		s.passes(300 * time.Millisecond)
		s.writes(a, a, a, 64)
		s.want(t, decided{State: StateRight})
		arrivals := s.takeMoved()
		if len(arrivals) != 1 || arrivals[0].took != rest+300*time.Millisecond {
			t.Fatalf("arrived: %v", arrivals)
		}
		s.writes(a, a, x, 64) // and back
		s.want(t, decided{State: StateWaiting})
		rest = min(max(2*rest, minRest), maxRest)
		s.passes(rest - time.Millisecond)
		s.writes(a, a, x, 64)
		s.want(t, decided{State: StateWaiting})
		s.passes(time.Millisecond)
	}
	// After it has stayed for long, rests are short again.
	s.writes(a, a, a, 64)
	s.decides()
	for range 30 {
		s.passes(5 * time.Second)
		s.writes(a, a, a, 64)
		s.decides()
	}
	if f := s.files[writeback.Inode{Number: 1}]; f.rest.took != 0 {
		t.Errorf("the next rest of the file would be long: the last one was %v, want 0", f.rest.took)
	}
}

// TestLedgerFails verifies that a file that does not move is left alone for a time, and is then retried.
func TestLedgerFails(t *testing.T) {
	s := newStory()
	for range 110 {
		s.writes(a, a, x, 64)
		s.decides()
		s.passes(100 * time.Millisecond)
	}
	f := s.files[writeback.Inode{Number: 1}]
	if f.repair.failure == "" {
		t.Fatal("the file that does not move has not failed")
	}
	s.passes(minRest)
	s.writes(a, a, x, 64)
	s.want(t, decided{move, "a", StateRepairing})
}

// TestLedgerPatient verifies that a repair is not given up if the file seldom has pages to make votes with.
func TestLedgerPatient(t *testing.T) {
	s := newStory()
	for range minPasses - 1 {
		s.writes(x, x, a, 1024)
		s.want(t, decided{move, "", StateRepairing})
		s.passes(maxRepairTime)
	}
}

// TestLedgerComing verifies that writes that an alarm reported, and that are not counted yet, do not change
// which writer has the most bytes.
func TestLedgerComing(t *testing.T) {
	s := newStory()
	s.writes(a, a, x, 64)
	s.decides()
	f := s.files[writeback.Inode{Number: 1}]
	before := f.total()
	s.add(s.now, &sample{
		inode: f.Inode, fs: testFS, writer: member{a, 7}, charged: x, owner: member{x, idOf[x]},
		span: span{1 << 20, 1 << 20}, coming: minBytes,
	})
	if got := &f.shares[0]; f.total() != before || got.recent.misplaced != 0 || f.history.misplaced != 64<<10 ||
		got.fresh.bytes != 64<<10+minBytes || got.fresh.misplaced != minBytes {
		t.Errorf("got %+v of %+v", got, f)
	}
}

// TestLedgerContested verifies that a file with several writers stays with its owner, unless one of them has
// most of the bytes, or strict moves it to the writer with the smallest limit.
func TestLedgerContested(t *testing.T) {
	both := func(s *story, ofA, ofX uint64, owner domain) {
		s.writes(a, a, owner, ofA)
		s.writes(x, x, owner, ofX)
	}
	s := newStory()
	both(s, 50, 50, x)
	s.want(t, decided{State: StateContested})
	both(s, 10, 20, a)
	s.want(t, decided{State: StateContested})
	both(s, 0, 200, a)
	s.want(t, decided{move, "", StateRepairing})
	both(s, 0, 0, x)
	s.want(t, decided{State: StateContested})

	s = newStory()
	s.strict = true
	both(s, 30, 70, x)
	s.want(t, decided{move, "a", StateRepairing})
	both(s, 30, 70, a)
	s.want(t, decided{State: StateContested})
	both(s, 0, 2000, a) // a has less than a tenth
	s.passes(2 * minRest)
	s.want(t, decided{move, "", StateRepairing})
}

// TestLedgerForgets verifies that a file that is not written to leaves the ledger.
func TestLedgerForgets(t *testing.T) {
	s := newStory()
	s.writes(a, x, x, 64)
	s.passes(forgetAfter + 1)
	s.want(t, decided{})
	if len(s.files) > 0 {
		t.Error("a file without recent writes is kept")
	}
}

// TestLedgerOfRemoved verifies that a removed cgroup does not count as a writer any more, however much it
// wrote.
func TestLedgerOfRemoved(t *testing.T) {
	s := newStory()
	s.writes(b, b, x, 1<<20)
	s.limits = &testLimits{gone: map[domain]bool{b: true}}
	s.writes(a, a, b, 64)
	s.want(t, decided{move, "a", StateRepairing})
}

// TestLedgerPaused verifies that a policy that has nothing repaired leaves nothing half done.
func TestLedgerPaused(t *testing.T) {
	s := newStory()
	s.writes(a, x, x, 64)
	s.decides()
	s.pause(s.now)
	s.passes(2 * maxRepairTime)
	s.admit = false
	s.writes(a, x, x, 64)
	s.want(t, decided{State: StateWaiting})
}

// TestLedgerDrops verifies that pages that cannot be dropped are left for a time.
func TestLedgerDrops(t *testing.T) {
	s := newStory()
	s.writes(a, x, a, 64)
	s.want(t, decided{drop, "a", StateRight})
	f := s.files[writeback.Inode{Number: 1}]
	s.fail(s.now, f, "no")
	s.writes(a, x, a, 64)
	s.want(t, decided{State: StateFailed})
	s.passes(minRest)
	s.writes(a, x, a, 64)
	s.want(t, decided{drop, "a", StateRight})
}

// TestLedgerLeftovers verifies that pages charged to others that were under writeback when the file was moved
// are dropped once they are on the disk.
func TestLedgerLeftovers(t *testing.T) {
	s := newStory()
	s.writes(a, x, x, 64)
	s.want(t, decided{move, "a", StateRepairing})
	f := s.files[writeback.Inode{Number: 1}]
	f.drops.passes = 1 // by the pass
	s.writes(a, a, a, 64)
	s.want(t, decided{State: StateRight})
	s.passes(leftoverEvery)
	s.writes(a, a, a, 64)
	s.want(t, decided{drop, "a", StateRight})
	f.drops.leftovers = 0 // by passes
	s.writes(a, a, a, 64)
	s.want(t, decided{State: StateRight})
}

// TestTurns verifies that the many files of one writer do not delay those of another.
func TestTurns(t *testing.T) {
	of := func(d domain) task { return task{to: &share{domain: d}} }
	var got []domain
	for _, task := range takeTurns([]task{of(a), of(a), of(a), of(b), of(a), of(b), of(x)}, func(t *task) domain { return t.to.domain }) {
		got = append(got, task.to.domain)
	}
	if want := []domain{a, b, x, a, b, a, a}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// brings adds files that a domain writes to and that x owns.
func (s *story) brings(d domain, of account, from, n uint64) {
	for i := range n {
		s.add(s.now, &sample{
			inode: writeback.Inode{Number: from + i}, fs: testFS, writer: member{domain: d}, charged: x, owner: member{domain: x}, account: of, bytes: 5,
		})
	}
}

// TestLedgerBounded verifies that writes for which the ledger has no room are counted.
func TestLedgerBounded(t *testing.T) {
	s := newStory()
	s.brings(a, "evil", 1, maxFiles+7)
	if n := len(s.files); n != maxFiles || s.full != 5*7 {
		t.Errorf("%d files, %d bytes more", n, s.full)
	}
	// So are the shares of a file: the smallest goes.
	for i := range uint64(2 * maxShares) {
		s.add(s.now, &sample{inode: writeback.Inode{Number: 1}, fs: testFS, writer: member{domain{removed: i + 1}, i}, charged: x, owner: member{domain: x}, bytes: i + 100})
	}
	if n := len(s.files[writeback.Inode{Number: 1}].shares); n != maxShares {
		t.Errorf("%d shares", n)
	}
	s.passes(forgetAfter + 1)
	s.decides()
	if len(s.files)+len(s.touched)+len(s.brought) > 0 {
		t.Errorf("%d files, %d touched, %d accounts are kept", len(s.files), len(s.touched), len(s.brought))
	}
}

// TestLedgerShares verifies that the containers of one pod cannot take the room of other pods. Each pod has an
// equal share, and can use room that others do not need.
func TestLedgerShares(t *testing.T) {
	s := newStory()
	for i := range uint64(3) {
		s.brings(domain{cgroup: "evil/" + strconv.Itoa(int(i))}, "evil", 1+i<<20, 5000)
	}
	if n := len(s.brought["evil"]); n != maxFiles {
		t.Fatalf("one pod alone has room for %d files", n)
	}
	s.brings(domain{cgroup: "victim"}, "victim", 1<<40, 100)
	if n := len(s.brought["victim"]); n != 100 {
		t.Errorf("beside it, of 100 files of another %d are known", n)
	}
	for i := range uint64(8) {
		s.brings(b, account("pod"+strconv.Itoa(int(i))), 1<<50+i<<20, 2*maxFiles)
	}
	if n := len(s.files); n != maxFiles {
		t.Errorf("%d files in all", n)
	}
	for of, files := range s.brought {
		if n := len(files); of != "victim" && n < maxFiles/10 {
			t.Errorf("%s has %d files", of, n)
		}
	}
	if n := len(s.brought["victim"]); n != 100 {
		t.Errorf("beside nine that take all they can, %d", n)
	}
}

// BenchmarkDecide measures a decision while all files of the ledger wait to be moved.
func BenchmarkDecide(b *testing.B) {
	s := newStory()
	s.brings(a, "evil", 1, maxFiles)
	for f := range s.touched {
		f.shares[0].recent.bytes = minBytes
	}
	for b.Loop() {
		s.decide(s.now)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/maxFiles, "us/file")
}
