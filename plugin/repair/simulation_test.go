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

// simulation is a Repairer that runs on a model of the kernel. Its time is that of a
// synctest bubble.
type simulation struct {
	*Repairer
	t        *testing.T
	tree     *modelTree
	cache    *modelCache
	observer *modelObserver
	a, b, x  uint64 // cgroups: a and b are limited, a to less; x is not
}

// modelObserver reports what is written to the model's files: all with Read, and once for
// each cgroup after SetAlarm what is written to another cgroup's file.
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
			Limits: limitsOf("8:0", "wbps", rate),
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

// TestSimulation: files go to their writers where a limit is concerned, and to no others.
func TestSimulation(t *testing.T) {
	const gone = 999
	for _, tt := range []struct {
		name    string
		owner   func(s *simulation) uint64
		cached  func(s *simulation) uint64 // the cgroup that all of the file is charged to; 0: nothing is cached
		writers func(s *simulation) []writer
		want    func(s *simulation) uint64
		moves   int64
	}{
		{
			"appends to a file of a removed container",
			func(*simulation) uint64 { return gone }, nil,
			func(s *simulation) []writer {
				return []writer{{cgroup: s.a, pages: 64, step: 64, every: 100 * time.Millisecond}}
			},
			func(s *simulation) uint64 { return s.a }, 1,
		},
		{
			"rewrites a file of a removed container",
			func(*simulation) uint64 { return gone }, func(*simulation) uint64 { return gone },
			func(s *simulation) []writer {
				return []writer{{cgroup: s.a, pages: 256, every: 100 * time.Millisecond}}
			},
			func(s *simulation) uint64 { return s.a }, 1,
		},
		{
			"a limited container escapes its limit",
			func(s *simulation) uint64 { return s.x }, func(s *simulation) uint64 { return s.x },
			func(s *simulation) []writer {
				return []writer{{cgroup: s.a, pages: 256, every: 100 * time.Millisecond}}
			},
			func(s *simulation) uint64 { return s.a }, 1,
		},
		{
			"an unlimited container is slowed by another's limit",
			func(s *simulation) uint64 { return s.a }, func(s *simulation) uint64 { return s.a },
			func(s *simulation) []writer {
				return []writer{{cgroup: s.x, pages: 256, every: 100 * time.Millisecond}}
			},
			func(s *simulation) uint64 { return s.x }, 1,
		},
		{
			"writes and syncs a page at a time",
			func(s *simulation) uint64 { return s.x }, nil,
			func(s *simulation) []writer {
				return []writer{{cgroup: s.a, pages: 1, step: 1, every: 10 * time.Millisecond, syncs: true}}
			},
			func(s *simulation) uint64 { return s.a }, 1,
		},
		{
			"its own file",
			func(s *simulation) uint64 { return s.a }, func(s *simulation) uint64 { return s.a },
			func(s *simulation) []writer {
				return []writer{{cgroup: s.a, pages: 256, every: 100 * time.Millisecond}}
			},
			func(s *simulation) uint64 { return s.a }, 0,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulation(t, policy.Default())
				s.cache.offline[gone] = true
				f := s.file(1, tt.owner(s))
				if tt.cached != nil {
					f.writes(tt.cached(s), 0, 256)
					f.clean()
				}
				s.run(func() { s.writes(f, 10*time.Second, tt.writers(s)...) })
				if got := s.ownerOf(f); got != tt.want(s) {
					t.Errorf("the file belongs to %d, want %d", got, tt.want(s))
				}
				if got := s.counts.moved.Load(); got != tt.moves {
					t.Errorf("%d files were moved, want %d", got, tt.moves)
				}
				if !s.observer.closed {
					t.Error("the programs are not unloaded")
				}
			})
		})
	}
}

// reported returns the report that status reads.
func (s *simulation) reported() *Report {
	s.t.Helper()
	r, err := ReadReport(s.report)
	if err != nil || r == nil {
		s.t.Fatalf("there is no report: %v", err)
	}
	return r
}

// TestSimulationContested: a file that two containers write to stays where it is, and is
// reported with both.
func TestSimulationContested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(t, policy.Default())
		f := s.file(1, s.b)
		both := []writer{
			{cgroup: s.a, pages: 64, step: 64, every: 100 * time.Millisecond},
			{cgroup: s.b, first: 1 << 20, pages: 64, step: 64, every: 100 * time.Millisecond},
		}
		s.run(func() {
			s.writes(f, 2*time.Second, both...)
			owner, rounds := s.ownerOf(f), f.rounds
			s.writes(f, 8*time.Second, both...)
			if got := s.ownerOf(f); got != owner || f.rounds != rounds {
				t.Errorf("the file went from %d to %d, after %d rounds", owner, got, f.rounds-rounds)
			}
			r := s.reported()
			if r.Mode != ModeRepair || len(r.Files) != 1 || r.Files[0].State != StateContested || len(r.Files[0].Writers) != 2 {
				t.Fatalf("the report is %+v", r)
			}
			for _, w := range r.Files[0].Writers {
				if w.Pod != "one" || w.Share < 0.4 || w.Share > 0.6 {
					t.Errorf("a writer is %+v", w)
				}
			}
		})
	})
}

// TestSimulationOnlyObserves: files are reported, and not moved, where the policy or the
// kernel is against it.
func TestSimulationOnlyObserves(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy func(p *policy.Policy)
		kernel kernel.Verdict
		want   string
	}{
		{"observe", func(p *policy.Policy) { p.Mode = policy.ModeObserve }, kernel.Verdict{State: kernel.Fixed}, ModeObserve},
		{"off", func(p *policy.Policy) { p.Writeback.Repair = policy.RepairOff }, kernel.Verdict{State: kernel.Fixed}, ModeObserve},
		{"gated", func(*policy.Policy) {}, kernel.Verdict{State: kernel.Affected}, ModeGated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := policy.Default()
				tt.policy(p)
				s := newSimulation(t, p)
				s.kernel = tt.kernel
				f := s.file(1, s.x)
				s.run(func() {
					s.writes(f, 5*time.Second, writer{cgroup: s.a, pages: 64, step: 64, every: 100 * time.Millisecond})
					r := s.reported()
					if r.Mode != tt.want || len(r.Files) != 1 || r.Files[0].State != StateWaiting || r.Files[0].Misplaced == 0 {
						t.Errorf("the report is %+v", r)
					}
					if len(r.Filesystems) != 1 || r.Filesystems[0].Mountpoint != "/data" {
						t.Errorf("the filesystems are %+v", r.Filesystems)
					}
				})
				if f.rounds != 0 || s.ownerOf(f) != s.x || len(s.cache.opened) != 0 {
					t.Errorf("the file was opened or written out: %d rounds", f.rounds)
				}
				if r, err := ReadReport(s.report); r != nil || err != nil {
					t.Errorf("a report is left: %+v, %v", r, err)
				}
			})
		})
	}
}

// TestSimulationReload: a policy that is reloaded holds from then on.
func TestSimulationReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy.Default()
		p.Writeback.Repair = policy.RepairOff
		s := newSimulation(t, p)
		f := s.file(1, s.x)
		appends := writer{cgroup: s.a, pages: 64, step: 64, every: 100 * time.Millisecond}
		s.run(func() {
			s.writes(f, 2*time.Second, appends)
			if s.ownerOf(f) != s.x {
				t.Error("the file was moved")
			}
			s.Reload(policy.Default())
			s.writes(f, 3*time.Second, appends)
		})
		if s.ownerOf(f) != s.a {
			t.Error("the file was not moved after the reload")
		}
	})
}

// TestSimulationBudget: repairs write out no more early than the policy allows.
func TestSimulationBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, seconds = 1 << 20, 10
		p := policy.Default()
		p.Writeback.Budget.ExtraBps = perSecond
		s := newSimulation(t, p)
		files := make([]*modelFile, 50)
		for i := range files {
			files[i] = s.file(uint64(i+1), s.x)
		}
		s.run(func() {
			for range seconds {
				for _, f := range files {
					s.observer.sees(f.writes(s.a, int64(f.rounds)*1000, 256))
				}
				time.Sleep(time.Second)
			}
		})
		if early := s.counts.early.Load(); early == 0 || early > perSecond*(seconds+2) {
			t.Errorf("%d bytes were written out early in %d s, %d a second are allowed", early, seconds, perSecond)
		}
	})
}

// TestSimulationMapped: a writer that maps its file is charged for it once it was paged
// out of its mappings.
func TestSimulationMapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pid = 4711
		s := newSimulation(t, policy.Default())
		f := s.file(1, s.x)
		f.writes(s.x, 0, 256)
		f.clean()
		f.mapped = true
		if err := os.WriteFile(filepath.Join(s.tree.dir, "kubepods/podone/a/cgroup.procs"), []byte("4711\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		s.procs.process = func(_ string, of int, in writeback.Inode, _, _ int64, _ int) (int, error) {
			if of != pid || in != f.Inode {
				t.Errorf("%s is paged out of %d", in, of)
			}
			f.pageOut()
			return 100, nil
		}
		s.run(func() {
			s.writes(f, 10*time.Second, writer{cgroup: s.a, pages: 256, every: 100 * time.Millisecond, syncs: true})
		})
		if got := s.ownerOf(f); got != s.a {
			t.Errorf("the file belongs to %d, want %d", got, s.a)
		}
	})
}
