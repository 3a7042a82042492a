package repair

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// complaints returns the problems that last.
func (n *nodeTest) complaints() []string { return slices.Sorted(maps.Keys(n.problems.lasting)) }

func (n *nodeTest) wantComplaints(t *testing.T, want ...string) {
	t.Helper()
	if got := n.complaints(); !slices.Equal(got, want) {
		t.Errorf("complaints are %v, want %v", got, want)
	}
}

// TestComplain verifies that a problem is logged when it is new, again while it lasts, and when it has passed.
func TestComplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodeTest(t)
		log, hook := logtest.NewNullLogger()
		n.problems.log = log
		logged := func() (out []string) {
			for _, e := range hook.AllEntries() {
				line := e.Level.String() + " " + e.Message
				if err, ok := e.Data[logrus.ErrorKey].(error); ok {
					line += ": " + err.Error()
				}
				out = append(out, line)
			}
			hook.Reset()
			return out
		}
		for i, step := range []struct {
			err   error
			after time.Duration
			want  []string
		}{
			{nil, 0, nil},
			{errIO, 0, []string{"warning It fails: input/output error"}},
			{errIO, time.Minute, nil},
			{errOtherMount, 0, []string{"warning It fails: a different filesystem is mounted at this path"}},
			{errOtherMount, time.Hour, []string{"warning It fails: a different filesystem is mounted at this path"}},
			{nil, 0, []string{"info It fails: no more"}},
			{nil, 0, nil},
		} {
			time.Sleep(step.after)
			n.problems.complain("key", "It fails", step.err)
			if diff := cmp.Diff(step.want, logged()); diff != "" {
				t.Errorf("step %d (-want, +got):\n%s", i, diff)
			}
		}
		n.wantComplaints(t)
	})
}

// TestRead verifies that writes get into the ledger. Writes for which there is no room, and errors of reads,
// are logged.
func TestRead(t *testing.T) {
	n := newNodeTest(t)
	fs := n.watches(0)
	const writer, removed, unwatched = 5, 77, 40
	n.domains.paths = map[uint64]place{}
	tree := n.domains.cgroups.(*modelTree)
	tree.paths = map[uint64]string{writer: "kubepods/podone/a"}
	if err := n.domains.refresh(); err != nil {
		t.Fatal(err)
	}
	event := writeback.Dirtied{Inode: writeback.Inode{Dev: fs.dev, Number: 1}, Writer: writer, Charged: removed, Owner: removed, Bytes: 1 << 20}
	elsewhere := event
	elsewhere.Dev = blkio.Dev{Minor: unwatched}
	metadata := event
	metadata.Root, metadata.Number = writeback.BtrfsRootTree, 2
	own := writeback.Dirtied{Inode: writeback.Inode{Dev: fs.dev, Number: 3}, Writer: writer, Bytes: 10} // charged and owner are not known
	n.observer.read = func() []writeback.Dirtied { return []writeback.Dirtied{event, elsewhere, metadata, own} }
	if got := n.read(n.now); got != 4 {
		t.Errorf("%d found", got)
	}
	if len(n.ledger.files) != 1 || n.ledger.files[event.Inode] == nil {
		t.Errorf("the ledger has %v", n.ledger.files)
	}
	if right, wrong := n.metrics.right.Load(), n.metrics.wrong.Load(); right != 10 || wrong != 1<<20 {
		t.Errorf("%d bytes are right, %d wrong", right, wrong)
	}
	n.wantComplaints(t)
	if !n.pace.hasAlarm {
		t.Error("the alarm is not set")
	}

	n.observer.read, n.observer.err = nil, errIO
	n.read(n.now)
	n.wantComplaints(t, "alarm", "read")
	if n.pace.hasAlarm {
		t.Error("the alarm is broken")
	}
	n.observer.err = nil
	n.read(n.now)
	n.wantComplaints(t)

	tree.err = errIO
	n.observer.read = func() []writeback.Dirtied { return []writeback.Dirtied{event} }
	n.read(n.now)
	n.wantComplaints(t, "cgroup")
	clear(n.watch.filesystems)
	if got := n.read(n.now); got != 0 {
		t.Errorf("nothing is watched, and %d found", got)
	}
}

// TestLost verifies that lost writes are logged while their number grows, and not after that.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodeTest(t)
		n.watches(0)
		log, hook := logtest.NewNullLogger()
		n.problems.log = log
		for i, step := range []struct {
			lost uint64
			logs int
		}{{0, 0}, {4096, 1}, {4096, 0}, {8192, 1}, {8192, 0}} {
			n.observer.lost = step.lost
			n.read(n.now)
			if got := len(hook.AllEntries()); got != step.logs || n.metrics.lost.Load() != step.lost {
				t.Errorf("step %d: %d lines, %d bytes are lost", i, got, n.metrics.lost.Load())
			}
			hook.Reset()
			time.Sleep(time.Hour)
		}
		// Another observer counts from 0, the metric does not.
		n.watch.load = func() (observer, error) { return &fakeObserver{}, nil }
		n.observer.noSubvolumes = true
		n.withoutSubvolumes(map[blkio.Dev]*filesystem{{}: {fstype: "btrfs"}})
		if n.read(n.now); n.metrics.lost.Load() != 8192 {
			t.Errorf("%d bytes are lost after a reload", n.metrics.lost.Load())
		}
	})
}

// TestHear verifies that a pass begins at once over a file that the alarm rings for.
func TestHear(t *testing.T) {
	n := newNodeTest(t)
	fs := n.watches(0)
	tree := n.domains.cgroups.(*modelTree)
	tree.paths = map[uint64]string{5: "kubepods/podone/a", 6: "kubepods/podtwo/x", 7: "kubepods/podtwo/y"}
	if err := n.domains.refresh(); err != nil {
		t.Fatal(err)
	}
	ring := writeback.Dirtied{Inode: writeback.Inode{Dev: fs.dev, Number: 1}, Writer: 5, Charged: 5, Owner: 6}
	unlimited := writeback.Dirtied{Inode: writeback.Inode{Dev: fs.dev, Number: 2}, Writer: 7, Charged: 7, Owner: 6}
	elsewhere := ring
	elsewhere.Dev = blkio.Dev{Minor: 40}
	if got := n.onAlarm(n.now, &elsewhere); got != writesTick || len(n.passes.busy) > 0 {
		t.Errorf("not watched: %v, %d passes", got, len(n.passes.busy))
	}
	if got := n.onAlarm(n.now, &unlimited); got != writesTick || len(n.passes.busy) > 0 {
		t.Errorf("no limit: %v, %d passes", got, len(n.passes.busy))
	}
	if got := n.onAlarm(n.now, &ring); got != tick || len(n.passes.busy) != 1 || n.passes.visiting[ring.Inode] == nil {
		t.Fatalf("foreign: %v, %d passes", got, len(n.passes.busy))
	}
	if got := n.onAlarm(n.now, &ring); got != tick || len(n.passes.busy) != 1 || len(n.passes.visiting[ring.Inode].dirtied) != 1 {
		t.Errorf("second alarm: next read after %v, %d passes; want one pass, with a signal that its file was dirtied", got, len(n.passes.busy))
	}
}

// TestNote verifies how the results of a pass are noted.
func TestNote(t *testing.T) {
	const moved = 5
	for _, tt := range []struct {
		name      string
		outcome   outcome
		skipped   bool
		err       error
		known     bool // the file, after it
		state     State
		touched   bool
		complaint []string
	}{
		{"moved", outcome{owner: moved, path: "/data/f", written: 4096}, false, nil, true, StateRepairing, true, nil},
		{"gone", outcome{err: writeback.ErrNoFile}, false, nil, false, "", false, nil},
		{"failed", outcome{err: errIO, written: 4096}, false, nil, true, StateFailed, false, nil},
		{"skipped", outcome{}, true, nil, true, StateRepairing, true, nil},
		{"not mounted", outcome{}, false, errIO, true, StateRepairing, false, []string{"pass 8:0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNodeTest(t)
			fs := n.watches(0)
			n.writes(fs, "one", "a", 1)
			if n.acts(); len(n.passes.busy) != 1 {
				t.Fatalf("%d passes", len(n.passes.busy))
			}
			n.domains.cgroups.(*modelTree).paths = map[uint64]string{moved: "kubepods/podone/a"}
			if err := n.domains.refresh(); err != nil {
				t.Fatal(err)
			}
			p := passed{fs: fs, account: "one", cpu: time.Second, err: tt.err}
			tt.outcome.Inode = n.last
			switch {
			case tt.skipped:
				p.skipped = []writeback.Inode{n.last}
			case tt.err == nil:
				p.outcomes = []outcome{tt.outcome}
			}
			n.note(n.now, p)
			if len(n.passes.busy)+len(n.passes.visiting)+len(n.passes.byAccount) > 0 {
				t.Error("the pass is under way")
			}
			if n.metrics.cpu.Load() != int64(time.Second) || n.metrics.early.Load() != tt.outcome.written {
				t.Errorf("counted are %v and %d bytes", n.metrics.cpu.Load(), n.metrics.early.Load())
			}
			f := n.ledger.files[n.last]
			if (f != nil) != tt.known || f != nil && (reported(f.state.State()) != tt.state || n.ledger.touched[f] != tt.touched) {
				t.Errorf("the file is %+v", f)
			}
			if tt.outcome.owner == moved && (f.owner.id != moved || f.owner.cgroup != "kubepods/podone/a" || f.path != "/data/f") {
				t.Errorf("the file is %+v", f)
			}
			n.wantComplaints(t, tt.complaint...)
		})
	}
}

// TestHangs verifies that a pass that does not end is reported and logged until it ends.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodeTest(t)
		n.now = time.Now()
		n.writes(n.watches(0), "one", "a", 1)
		n.acts()
		hangsNow := func() bool {
			n.publish(time.Now())
			return n.newReport(time.Now()).Filesystems[0].Hangs
		}
		if hangsNow() {
			t.Error("a pass that has just begun is reported as hanging")
		}
		time.Sleep(hangs + time.Second)
		if !hangsNow() {
			t.Error("a pass that does not end is not reported as hanging")
		}
		n.wantComplaints(t, "hangs 8:0")
		for key := range n.passes.busy {
			n.passes.exit(key)
		}
		if hangsNow() {
			t.Error("an ended pass is reported as hanging")
		}
		n.wantComplaints(t)
	})
}

// TestClose verifies that passes are ended and waited for at the end of the process. A pass that hangs is not
// waited for.
func TestClose(t *testing.T) {
	for name, tt := range map[string]struct {
		pass func(w *worker, _ []visit) passed
		most time.Duration
	}{
		"leaves": {func(w *worker, _ []visit) passed {
			<-w.stop
			return passed{fs: w.fs, account: w.account}
		}, 0},
		"hangs": {func(*worker, []visit) passed {
			time.Sleep(time.Hour)
			return passed{}
		}, shutdown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNodeTest(t)
				n.now = time.Now()
				n.passes.run = tt.pass
				n.writes(n.watches(0), "one", "a", 1)
				n.acts()
				began := time.Now()
				n.close()
				if took := time.Since(began); took != tt.most {
					t.Errorf("it took %v, want %v", took, tt.most)
				}
				if !n.observer.closed {
					t.Error("the programs are loaded yet")
				}
				time.Sleep(2 * time.Hour) // the pass ends
			})
		})
	}
}

// TestOnLimited verifies that filesystems that files can be moved on are watched, and only those.
func TestOnLimited(t *testing.T) {
	table, err := storage.ParseMountTable(strings.NewReader(strings.Join([]string{
		"36 25 8:0 / /data rw - ext4 /dev/sda rw",
		"37 25 8:0 /sub /bind rw - ext4 /dev/sda rw",    // the same once more
		"38 25 8:1 / /nfs rw - nfs server:/ rw",         // no cgroup writeback
		"39 25 8:2 / /data-journal rw - ext4 /dev/s rw", // data=journal
		"40 25 8:3 / /covered rw - xfs /dev/sdb rw",
	}, "\n") + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	sda := blkio.Dev{Major: 8}
	s := mountedStorage{fakeStorage{table}, map[string]blkio.Backing{
		"/data": {Mountpoint: "/data", FSType: "ext4", Disks: []blkio.Disk{{Dev: sda}}},
		"/data-journal": {
			Mountpoint: "/data-journal", FSType: "ext4", Disks: []blkio.Disk{{Dev: sda}},
			Warning: &blkio.Warning{Kind: blkio.NoCgroupWriteback},
		},
		"/covered": {Mountpoint: "/", FSType: "ext4", Disks: []blkio.Disk{{Dev: sda}}},
	}}
	got, err := onLimited(t.Context(), s, map[blkio.Dev]bool{sda: true})
	if err != nil {
		t.Fatal(err)
	}
	want := &filesystem{dev: sda, fstype: "ext4", mountpoint: "/data", disks: []blkio.Dev{sda}}
	if len(got) != 1 || got[sda] == nil || cmp.Diff(*want, *got[sda], cmp.AllowUnexported(filesystem{})) != "" {
		t.Errorf("got %+v", got)
	}
	if got, err := onLimited(t.Context(), s, nil); err != nil || len(got) > 0 {
		t.Errorf("without limits: %v, %v", got, err)
	}
	if _, err := onLimited(t.Context(), brokenStorage{}, map[blkio.Dev]bool{sda: true}); !errors.Is(err, errIO) {
		t.Errorf("got %v", err)
	}
}

// mountedStorage has the filesystems at mountpoints.
type mountedStorage struct {
	fakeStorage
	at map[string]blkio.Backing
}

func (s mountedStorage) Resolve(_ context.Context, p string) *blkio.Backing { return new(s.at[p]) }

func TestMovable(t *testing.T) {
	for fstype, want := range map[string]bool{
		"ext4": true, "xfs": true, "btrfs": true, "f2fs": true, "nfs": false, "overlay": false, "tmpfs": false, "": false,
	} {
		if movable(fstype) != want {
			t.Errorf("%q: %v", fstype, !want)
		}
	}
}
