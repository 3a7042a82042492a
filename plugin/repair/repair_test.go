package repair

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/repair/filestate"
	"github.com/nri-blkio/nri-blkio/policy"
)

// fakeObserver reports the writes that a test gives it.
type fakeObserver struct {
	rings        chan writeback.Dirtied
	read         func() []writeback.Dirtied
	lost         uint64
	err          error // of each call
	noSubvolumes bool
	closed       bool
}

func (o *fakeObserver) Watch([]blkio.Dev) error           { return o.err }
func (o *fakeObserver) SetAlarm() error                   { return o.err }
func (o *fakeObserver) Foreign() <-chan writeback.Dirtied { return o.rings }
func (o *fakeObserver) Subvolumes() bool                  { return !o.noSubvolumes }

func (o *fakeObserver) Close() error {
	o.closed = true
	return o.err
}

func (o *fakeObserver) Read() ([]writeback.Dirtied, uint64, error) {
	if o.read == nil {
		return nil, o.lost, o.err
	}
	return o.read(), o.lost, o.err
}

// fakeStorage is one filesystem on 8:0.
type fakeStorage struct{ table *storage.MountTable }

func (s fakeStorage) Refresh(context.Context) error               { return nil }
func (s fakeStorage) Mounts() *storage.MountTable                 { return s.table }
func (fakeStorage) Under(context.Context, blkio.Dev) []blkio.Disk { return nil }

func (s fakeStorage) Resolve(_ context.Context, p string) *blkio.Backing {
	return &blkio.Backing{Mountpoint: p, FSType: "ext4", Disks: []blkio.Disk{{Dev: blkio.Dev{Major: 8}}}}
}

// nodeTest is a Repairer whose passes do nothing, and do not end.
type nodeTest struct {
	*Repairer
	observer *fakeObserver
	now      time.Time
	last     writeback.Inode // of those that writes has added
}

func newNodeTest(t *testing.T) *nodeTest {
	log := logrus.New()
	log.SetOutput(io.Discard)
	table, err := storage.ParseMountTable(strings.NewReader("36 25 8:0 / /data rw,noatime - ext4 /dev/sda rw\n"))
	if err != nil {
		t.Fatal(err)
	}
	tree := testTree(t, map[string]record.Record{
		"kubepods/podone/a": {Namespace: "ns", Pod: "one", Kind: record.KindContainer, Container: "a", Settings: limitsOf("8:0", "wbps", 1<<20)},
	})
	n := &nodeTest{
		observer: &fakeObserver{rings: make(chan writeback.Dirtied, 1)}, now: time.Now(),
	}
	n.Repairer = newRepairer(Config{Log: log, Policy: policy.Default(), Storage: fakeStorage{table}, Cgroups: tree, Kernel: kernel.Verdict{State: kernel.Fixed}}, n.observer, newModelCache())
	n.passes.run = func(*worker, []visit) passed {
		<-t.Context().Done()
		return passed{}
	}
	n.apply(n.now)
	return n
}

// watches has a filesystem watched.
func (n *nodeTest) watches(minor uint32) *filesystem {
	dev := blkio.Dev{Major: 8, Minor: minor}
	fs := &filesystem{dev: dev, fstype: "ext4", mountpoint: "/" + dev.String(), disks: []blkio.Dev{dev}}
	n.watch.filesystems[dev] = fs
	return fs
}

// writes adds files of a removed cgroup that a container of a pod writes to.
func (n *nodeTest) writes(fs *filesystem, pod account, container string, files int) {
	writer, owner := member{domain{cgroup: "kubepods/pod" + string(pod) + "/" + container}, 5}, member{domain{removed: 9}, 9}
	n.domains.subjects[writer.cgroup] = subject{reading: &reading{}}
	for range files {
		n.last = writeback.Inode{Dev: fs.dev, Number: n.last.Number + 1}
		n.ledger.add(n.now, &sample{
			inode: n.last, fs: fs, writer: writer, charged: writer.domain, owner: owner,
			account: pod, bytes: 1 << 20, span: span{0, 1 << 20},
		})
	}
}

// acts has passes begin, and returns how many files those of each pod are over.
func (n *nodeTest) acts() map[account]int {
	n.act(n.now, n.ledger.decide(n.now))
	out := map[account]int{}
	for _, pass := range n.passes.visiting {
		out[pass.account]++
	}
	return out
}

// TestPassesOfPods verifies that the files of one pod do not wait for those of another, however many there are,
// on the same filesystem.
func TestPassesOfPods(t *testing.T) {
	n := newNodeTest(t)
	fs := n.watches(0)
	for i := range 5 {
		n.writes(fs, "evil", fmt.Sprint(i), 1000)
	}
	if got := n.acts(); got["evil"] != maxVisits {
		t.Errorf("passes are over %v", got)
	}
	n.writes(fs, "victim", "a", 1)
	if got := n.acts(); got["victim"] != 1 || got["evil"] != maxVisits {
		t.Errorf("passes are over %v", got)
	}
	if len(n.passes.busy) != 2 {
		t.Errorf("%d passes", len(n.passes.busy))
	}
}

// TestDebtOfOnePod verifies that the debt of one pod's files to the budgets of the node does not reduce the
// budgets of other pods.
func TestDebtOfOnePod(t *testing.T) {
	b := policy.Default().Writeback.Budget
	for _, tt := range []struct {
		name  string
		spend func(n *nodeTest)
	}{
		{"bytes", func(n *nodeTest) { n.budgets.early.spend(n.now, "evil", float64(b.ExtraBps)) }},
		{"files", func(n *nodeTest) {
			for n.budgets.files.ready(n.now, "evil", 1) {
				n.budgets.files.spend(n.now, "evil", 1)
			}
		}},
		{"time", func(n *nodeTest) { n.budgets.cpu.spend(n.now, "evil", 1.2*float64(b.CPU)/100*cpuSaved.Seconds()) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNodeTest(t)
			fs := n.watches(0)
			tt.spend(n)
			n.writes(fs, "evil", "a", 1)
			n.writes(fs, "victim", "a", 1)
			if got := n.acts(); got["evil"] != 0 || got["victim"] != 1 {
				t.Errorf("passes are over %v", got)
			}
		})
	}
}

// TestPassesBounded verifies that a pod with disks that do not answer has few threads, and that its waiting
// passes end when there is more work.
func TestPassesBounded(t *testing.T) {
	n := newNodeTest(t)
	for i := range uint32(3 * maxAccountPasses) {
		n.writes(n.watches(i), "evil", "a", 1)
		n.acts()
		n.now = n.now.Add(100 * time.Millisecond)
	}
	if len(n.passes.busy) != maxAccountPasses || n.passes.byAccount["evil"] != maxAccountPasses {
		t.Errorf("%d passes", len(n.passes.busy))
	}
	for _, pass := range n.passes.busy {
		if len(pass.stop) == 0 {
			t.Error("a pass did not get a signal to stop")
		}
	}
	n.writes(n.watches(0), "victim", "a", 1)
	if got := n.acts(); got["victim"] != 1 {
		t.Errorf("passes are over %v", got)
	}
	for key := range n.passes.busy {
		n.passes.exit(key)
	}
	if len(n.passes.busy)+len(n.passes.byAccount)+len(n.passes.visiting) > 0 {
		t.Errorf("left: %v %v %v", n.passes.busy, n.passes.byAccount, n.passes.visiting)
	}
}

// TestReportOfPods verifies that the files of one pod do not hide another's from status.
func TestReportOfPods(t *testing.T) {
	n := newNodeTest(t)
	fs := n.watches(0)
	n.writes(fs, "evil", "a", 10*maxReported)
	n.writes(fs, "victim", "a", 1)
	for _, f := range n.ledger.files {
		f.state.Handle(filestate.Misplaced, false)
		f.shares[0].writers = []uint64{5}
		if f.history.account == "victim" {
			f.shares[0].recent.bytes = 4096
		}
	}
	report := n.newReport(n.now)
	var found bool // the victim's
	for _, f := range report.Files {
		found = found || f.Inode == n.last.Number
	}
	if !found || len(report.Files) != maxReported {
		t.Errorf("%d files are reported, the victim's: %v", len(report.Files), found)
	}
}

// TestReads verifies that reads are rare while nothing is written, and that the kernel's alarm makes the next
// one come soon.
func TestReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodeTest(t)
		reads := make(chan time.Time, 1000)
		n.observer.read = func() []writeback.Dirtied {
			reads <- time.Now()
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go n.Run(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := len(reads); got < 55 || got > 70 {
			t.Errorf("%d reads in a minute without writes, want 55 to 70", got)
		}
		for len(reads) > 0 {
			<-reads
		}
		time.Sleep(slowTick / 4)
		began := time.Now()
		n.observer.rings <- writeback.Dirtied{Inode: writeback.Inode{Dev: blkio.Dev{Major: 8}, Number: 1}, Writer: 5, Owner: 6}
		if took := (<-reads).Sub(began); took > writesTick {
			t.Errorf("the next read after the alarm was after %v", took)
		}
		cancel()
		synctest.Wait()
	})
}

// TestStepBacksOff verifies that the time until the next read depends on the results of the last one.
func TestStepBacksOff(t *testing.T) {
	n := newNodeTest(t)
	if got := n.step(n.now); got != idleTick {
		t.Errorf("without a watched filesystem the next read is after %v", got)
	}
	fs := n.watches(0)
	for i, want := range []time.Duration{writesTick, 2 * writesTick, 4 * writesTick, slowTick, slowTick} {
		if got := n.step(n.now); got != want {
			t.Errorf("after %d reads without writes the next one is after %v, want %v", i, got, want)
		}
	}
	n.observer.read = func() []writeback.Dirtied { return []writeback.Dirtied{{}} }
	if got := n.step(n.now); got != writesTick {
		t.Errorf("after a write the next read is after %v", got)
	}
	n.observer.err, n.observer.read = errIO, nil
	for range 3 {
		if got := n.step(n.now); got != writesTick {
			t.Errorf("without writes and without an alarm the next read is after %v", got)
		}
	}
	n.observer.err = nil
	n.writes(fs, "one", "a", 1)
	if got := n.step(n.now); got != tick {
		t.Errorf("after a write to a file of another owner the next read is after %v", got)
	}
	n.writes(fs, "one", "a", 4000)
	if got := n.step(n.now); got < 4000*fileTick {
		t.Errorf("with 4000 files the next read is after %v, want at least a tick for each", got)
	}
}

// TestWriterByCharge verifies that the charged cgroup counts as the writer for a kernel thread, and for a
// removed cgroup that was a part of it. A pod's cgroup does not: it is charged for the pages that its removed
// containers have left in the page cache (Linux 7.1), whichever cgroup writes to them.
func TestWriterByCharge(t *testing.T) {
	n := newNodeTest(t)
	fs := n.watches(0)
	const removed, container, pod, pods, nobody = 77, 5, 6, 7, 0
	n.domains.paths = map[uint64]place{
		removed:              {gone: true},
		writeback.RootCgroup: {path: "."},
		container:            {path: "kubepods/podone/a"},
		pod:                  {path: "kubepods/podone"},
		pods:                 {path: "kubepods"},
	}
	for _, tt := range []struct{ writer, charged, want uint64 }{
		{removed, container, container},
		{removed, removed, removed},
		{removed, pod, nobody},
		{removed, pods, nobody},
		{writeback.RootCgroup, container, container},
		{writeback.RootCgroup, pod, nobody},
		{container, pod, container},
	} {
		s, ok := n.sampleOf(&writeback.Dirtied{
			Inode: writeback.Inode{Dev: fs.dev, Number: 1}, Writer: tt.writer, Charged: tt.charged, Owner: removed, Bytes: 1 << 20,
		})
		if ok != (tt.want != nobody) || s.writer.id != tt.want {
			t.Errorf("%d writes, %d is charged: the writer is %d, want %d", tt.writer, tt.charged, s.writer.id, tt.want)
		}
	}
}
