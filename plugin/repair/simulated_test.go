package repair

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// simulation is a Repairer that runs on a model of the kernel. Its time is the time of a synctest bubble.
type simulation struct {
	*Repairer
	t        *testing.T
	tree     *modelTree
	cache    *modelCache
	observer *modelObserver
	a, b, x  uint64 // cgroups: a and b are limited, a to less; x is not
}

// modelObserver reports the writes to the model's files. Read returns all of them. After SetAlarm, each
// cgroup's first write to another cgroup's file is reported at once.
type modelObserver struct {
	mu      sync.Mutex // guards all below
	watched []blkio.Dev
	found   []writeback.Dirtied
	rung    map[uint64]bool
	rings   chan writeback.Dirtied
	closed  bool
}

func (o *modelObserver) Watch(devs []blkio.Dev) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watched = devs
	return nil
}

func (o *modelObserver) SetAlarm() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.rung)
	return nil
}

func (o *modelObserver) Foreign() <-chan writeback.Dirtied { return o.rings }
func (o *modelObserver) Subvolumes() bool                  { return true }

func (o *modelObserver) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	return nil
}

func (o *modelObserver) Read() ([]writeback.Dirtied, uint64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.found
	o.found = nil
	return out, 0, nil
}

// sees is the tracepoint.
func (o *modelObserver) sees(events []writeback.Dirtied) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.watched) == 0 {
		return
	}
	o.found = append(o.found, events...)
	for _, d := range events {
		if d.Owner == 0 || d.Owner == d.Writer || o.rung[d.Writer] {
			continue
		}
		o.rung[d.Writer], d.Bytes = true, 0
		select {
		case o.rings <- d:
		default:
		}
	}
}

func newSimulation(t *testing.T, p *policy.Policy) *simulation {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	table, err := storage.ParseMountTable(strings.NewReader("36 25 8:0 / /data rw,noatime - ext4 /dev/sda rw\n"))
	if err != nil {
		t.Fatal(err)
	}
	limit := func(pod, container string, rate blkio.Amount) record.Record {
		return record.Record{
			Namespace: "ns", Pod: pod, Kind: record.KindContainer, Container: container,
			Settings: limitsOf("8:0", "wbps", rate),
		}
	}
	tree := testTree(t, map[string]record.Record{
		"kubepods/podone/a": limit("one", "a", 1<<20),
		"kubepods/podone/b": limit("one", "b", 4<<20),
	})
	s := &simulation{
		t: t, tree: tree, cache: newModelCache(),
		observer: &modelObserver{rung: map[uint64]bool{}, rings: make(chan writeback.Dirtied, 4)},
	}
	s.a, s.b, s.x = s.cgroup("kubepods/podone/a"), s.cgroup("kubepods/podone/b"), s.cgroup("kubepods/podtwo/x")
	s.Repairer = newRepairer(Config{
		Log: log, Policy: p, Storage: fakeStorage{table}, Cgroups: s.tree,
		Kernel: kernel.Verdict{State: kernel.Fixed}, Report: filepath.Join(t.TempDir(), "report"),
	}, s.observer, s.cache)
	return s
}

// cgroup makes a cgroup, and returns its number.
func (s *simulation) cgroup(path string) uint64 {
	s.t.Helper()
	dir := filepath.Join(s.tree.dir, path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	st, err := os.Stat(dir)
	if err != nil {
		s.t.Fatal(err)
	}
	id := st.Sys().(*syscall.Stat_t).Ino
	s.tree.paths[id] = path
	return id
}

// file makes a file of the watched filesystem that belongs to a cgroup.
func (s *simulation) file(number, owner uint64) *modelFile {
	return s.cache.add(writeback.Inode{Dev: blkio.Dev{Major: 8}, Number: number, Generation: 1}, owner)
}

// run runs the Repairer while fn does, and then for as long as passes take to end.
func (s *simulation) run(fn func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	synctest.Wait()
	fn()
	cancel()
	<-ended
	synctest.Wait()
}

// writer writes pages of a file again and again.
type writer struct {
	cgroup       uint64
	first, pages int64
	step         int64 // how far it goes on each time
	every        time.Duration
	syncs        bool
}

// writes has the writers write for a time.
func (s *simulation) writes(f *modelFile, took time.Duration, writers ...writer) {
	next := make([]time.Time, len(writers))
	at := make([]int64, len(writers))
	for end := time.Now().Add(took); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for i, w := range writers {
			if time.Now().Before(next[i]) {
				continue
			}
			next[i] = time.Now().Add(w.every)
			s.observer.sees(f.writes(w.cgroup, w.first+at[i], w.pages))
			at[i] += w.step
			if w.syncs {
				// Others see the page dirty for a moment before the writer syncs it.
				time.Sleep(2 * time.Millisecond)
				_ = f.WriteOut(0, 1<<40)
			}
		}
	}
}

// ownerOf is the file's owner in the model.
func (s *simulation) ownerOf(f *modelFile) uint64 {
	o, err := f.Owner()
	if err != nil {
		s.t.Fatal(err)
	}
	return o.Cgroup
}
