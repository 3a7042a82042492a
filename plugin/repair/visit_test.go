package repair

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// testWorker returns a worker on a model of the page cache. Its pod has no bound on what it may spend.
func testWorker(c *modelCache, visits ...visit) *worker {
	now := time.Now()
	early, cpu := newBudget(time.Second), newBudget(time.Hour)
	early.set(now, 1<<30)
	cpu.set(now, 1)
	u := newUnderway(now, passKey{}, testFS, visits)
	return &worker{
		tools: tools{cache: c, procs: newMappings(nil, "/proc")}, budgets: budgets{early: early, cpu: cpu},
		fs: testFS, account: "pod",
		dirtied: u.dirtied, stop: u.stop, reportAlive: u.alive,
	}
}

var errIO = errors.New("input/output error")

// TestPass verifies the effect of a pass on a file, and the outcome.
func TestPass(t *testing.T) {
	const owner, writer, pages = 9, 5, 256
	dev := blkio.Dev{Major: 8}
	size := pages * writeback.PageSize()
	in := writeback.Inode{Dev: dev, Number: 1, Generation: 1}
	file := func(c *modelCache) *modelFile {
		f := c.add(in, owner)
		f.writes(writer, 0, pages)
		return f
	}
	for _, tt := range []struct {
		name  string
		cache func(c *modelCache)
		visit visit
		want  outcome // besides written
		err   error
		owner uint64 // in the end
	}{
		{"moved by votes", func(c *modelCache) { file(c) }, visit{work: move, ownerID: owner}, outcome{owner: owner, path: "/data/f1"}, nil, writer},
		{"moved meanwhile", func(c *modelCache) { file(c).owner = 7 }, visit{work: move, ownerID: owner}, outcome{owner: 7, path: "/data/f1"}, nil, 7},
		{"gone", func(*modelCache) {}, visit{work: move, ownerID: owner}, outcome{}, writeback.ErrNoFile, 0},
		{"its number was given to another file", func(c *modelCache) { file(c).Generation = 2 }, visit{work: move, ownerID: owner}, outcome{}, writeback.ErrNoFile, owner},
		{"a different filesystem is mounted at this path", func(c *modelCache) { file(c).Dev = blkio.Dev{Major: 9} }, visit{work: move, ownerID: owner}, outcome{}, errOtherMount, owner},
		{"the disk fails", func(c *modelCache) { file(c).err = errIO }, visit{work: move, ownerID: owner}, outcome{}, errIO, owner},
		{"without a path", func(c *modelCache) { file(c).path = "" }, visit{work: move, ownerID: owner}, outcome{owner: owner}, nil, writer},
		{"with a path that is long", func(c *modelCache) { file(c).path = strings.Repeat("x", maxPath+1) }, visit{work: move, ownerID: owner}, outcome{owner: owner}, nil, writer},
		{"without cachestat(2)", func(c *modelCache) { file(c); c.noStat = true }, visit{work: move, ownerID: owner}, outcome{owner: owner, path: "/data/f1"}, nil, writer},
		{"to be dropped only", func(c *modelCache) { file(c).clean() }, visit{work: drop, ownerID: owner, drops: true}, outcome{owner: owner, path: "/data/f1"}, nil, owner},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newModelCache()
				tt.cache(c)
				v := tt.visit
				v.Inode, v.last, v.fresh = in, size-writeback.PageSize(), uint64(size)
				got := testWorker(c, v).pass([]visit{v})
				if len(got.outcomes) != 1 || got.err != nil || got.fs != testFS || got.account != "pod" {
					t.Fatalf("got %+v", got)
				}
				o := got.outcomes[0]
				if !errors.Is(o.err, tt.err) || (o.err == nil) != (tt.err == nil) {
					t.Errorf("got %v, want %v", o.err, tt.err)
				}
				tt.want.Inode, tt.want.err, tt.want.written = in, o.err, o.written
				if o.err == nil && o != tt.want {
					t.Errorf("got %+v, want %+v", o, tt.want)
				}
				time.Sleep(switchDelay)
				if f := c.files[in]; f != nil {
					if tt.want.owner != owner && f.rounds > 0 {
						t.Errorf("%d rounds", f.rounds)
					}
					if f.finishSwitch(); f.owner != tt.owner {
						t.Errorf("it belongs to %d, want %d", f.owner, tt.owner)
					}
				}
			})
		})
	}
}

// TestPassDrops verifies that clean pages that are charged to others are dropped, so that the writer is charged
// for its next writes.
func TestPassDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const owner, writer, pages = 9, 5, 16
		c := newModelCache()
		f := c.add(writeback.Inode{Dev: blkio.Dev{Major: 8}, Number: 1}, owner)
		f.writes(owner, 0, pages)
		f.clean()
		v := visit{Inode: f.Inode, work: drop, ownerID: owner, drops: true, fresh: 1, last: pages * writeback.PageSize()}
		if got := testWorker(c, v).pass([]visit{v}); got.outcomes[0].err != nil {
			t.Fatal(got.outcomes[0].err)
		}
		want := writeback.Dirtied{Inode: f.Inode, Writer: writer, Charged: writer, Owner: owner, Bytes: uint64(writeback.PageSize())}
		if diff := cmp.Diff([]writeback.Dirtied{want}, f.writes(writer, 0, 1)); diff != "" {
			t.Errorf("the next write (-want, +got):\n%s", diff)
		}
	})
}

// TestPassStopsAtTheVerdict verifies that a pass makes no more rounds than the verdict takes.
func TestPassStopsAtTheVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pages = 16 << 10
		c := newModelCache()
		f := c.add(writeback.Inode{Dev: blkio.Dev{Major: 8}, Number: 1}, 9)
		f.writes(5, 0, pages)
		v := visit{Inode: f.Inode, work: move, ownerID: 9, fresh: 64 << 20, last: pages * writeback.PageSize()}
		got := testWorker(c, v).pass([]visit{v})
		if got.outcomes[0].err != nil || f.rounds == 0 || f.rounds > 2*verdictEvery {
			t.Errorf("%d rounds, %v", f.rounds, got.outcomes[0].err)
		}
		if f.written == pages {
			t.Error("all of the file was written out")
		}
	})
}

// TestPassWithoutMount verifies that a filesystem that cannot be opened is one error, not one of each file.
func TestPassWithoutMount(t *testing.T) {
	c := newModelCache()
	c.openErr = errIO
	visits := []visit{{Inode: writeback.Inode{Number: 1}}, {Inode: writeback.Inode{Number: 2}}}
	w := testWorker(c, visits...)
	w.hostRoot = "/host"
	got := w.pass(visits)
	if !errors.Is(got.err, errIO) || len(got.outcomes)+len(got.skipped) > 0 {
		t.Errorf("got %+v", got)
	}
	if c.opened[filepath.Join("/host", testFS.mountpoint)] != 1 {
		t.Errorf("opened was %v", c.opened)
	}
}

// TestPassSkips verifies that without CPU time that the pod may spend no file is opened, and each is tried
// again.
func TestPassSkips(t *testing.T) {
	c := newModelCache()
	in := writeback.Inode{Dev: blkio.Dev{Major: 8}, Number: 1}
	f := c.add(in, 9)
	f.writes(5, 0, 16)
	w := testWorker(c)
	w.cpu = newBudget(time.Second)
	got := w.pass([]visit{{Inode: in, work: move, ownerID: 9, fresh: 1 << 20}})
	if diff := cmp.Diff([]writeback.Inode{in}, got.skipped); diff != "" || f.rounds > 0 || len(got.outcomes) > 0 {
		t.Errorf("%d rounds, outcomes %v, skipped:\n%s", f.rounds, got.outcomes, diff)
	}
}

// TestPassWithoutAllowance verifies that a pass writes out no bytes early that the policy does not allow.
func TestPassWithoutAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newModelCache()
		f := c.add(writeback.Inode{Dev: blkio.Dev{Major: 8}, Number: 1}, 9)
		f.writes(5, 0, 16)
		v := visit{Inode: f.Inode, work: move, ownerID: 9, fresh: 64 << 10, last: 16 * writeback.PageSize()}
		w := testWorker(c, v)
		w.early = newBudget(time.Second)
		got := w.pass([]visit{v})
		if f.rounds > 0 || got.outcomes[0].err != nil || got.outcomes[0].written > 0 {
			t.Errorf("%d rounds, %+v", f.rounds, got.outcomes)
		}
	})
}

// TestPassStays verifies that a pass waits for the next write while pages of a file are under writeback, and
// then makes rounds of it.
func TestPassStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newModelCache()
		f := c.add(writeback.Inode{Dev: blkio.Dev{Major: 8}, Number: 1}, 9)
		f.disk = time.Minute
		f.writes(5, 0, 1)
		v := visit{Inode: f.Inode, work: move, ownerID: 9, fresh: 4 << 10, last: 0}
		u := newUnderway(time.Now(), passKey{}, testFS, []visit{v})
		w := testWorker(c)
		w.dirtied, w.stop, w.reportAlive = u.dirtied, u.stop, u.alive
		ended := make(chan passed)
		go func() { ended <- w.pass([]visit{v}) }()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		before := f.rounds
		f.writes(5, 1, 1)
		reminder.Wake(u.dirtied)
		if got := <-ended; got.outcomes[0].err != nil || f.rounds <= before {
			t.Errorf("%d rounds before the write, %d after it, %+v", before, f.rounds, got.outcomes)
		}
		if u.hangs(time.Now()) {
			t.Error("a pass that waits for a write hangs")
		}
	})
}
