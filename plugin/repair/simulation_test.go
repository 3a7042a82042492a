package repair

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestSimulation verifies that files go to their writers where a limit is concerned, and to no others.
func TestSimulation(t *testing.T) {
	const gone = 999
	type cgroup func(s *simulation) uint64
	removed := func(*simulation) uint64 { return gone }
	limitedA, unlimitedX := func(s *simulation) uint64 { return s.a }, func(s *simulation) uint64 { return s.x }
	rewrites := writer{pages: 256, every: 100 * time.Millisecond}
	for _, tt := range []struct {
		name   string
		owner  cgroup
		cached cgroup // that all of the file is charged to; nil: nothing is cached
		by     cgroup // the writer, which has the file in the end
		writes writer
		moves  int64
	}{
		{"appends to a file of a removed container", removed, nil, limitedA, writer{pages: 64, step: 64, every: 100 * time.Millisecond}, 1},
		{"rewrites a file of a removed container", removed, removed, limitedA, rewrites, 1},
		{"a limited container escapes its limit", unlimitedX, unlimitedX, limitedA, rewrites, 1},
		{"an unlimited container is slowed by another's limit", limitedA, limitedA, unlimitedX, rewrites, 1},
		{"writes and syncs a page at a time", unlimitedX, nil, limitedA, writer{pages: 1, step: 1, every: 10 * time.Millisecond, syncs: true}, 1},
		{"its own file", limitedA, limitedA, limitedA, rewrites, 0},
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
				tt.writes.cgroup = tt.by(s)
				s.run(func() { s.writes(f, 10*time.Second, tt.writes) })
				if got := s.ownerOf(f); got != tt.by(s) {
					t.Errorf("the file belongs to %d, want %d", got, tt.by(s))
				}
				if got := s.metrics.moved.Load(); got != tt.moves {
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

// TestSimulationContested verifies that a file that two containers write to stays where it is, and is reported
// with both.
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

// TestSimulationOnlyObserves verifies that files are reported, and not moved, where the policy or the kernel is
// against it.
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
				s.gate.kernel = tt.kernel
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

// TestSimulationReload verifies that a policy that is reloaded holds from then on.
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

// TestSimulationBudget verifies that repairs write out no more early than the policy allows.
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
		if early := s.metrics.early.Load(); early == 0 || early > perSecond*(seconds+2) {
			t.Errorf("%d bytes were written out early in %d s, %d a second are allowed", early, seconds, perSecond)
		}
	})
}

// TestSimulationMapped verifies that a writer that maps its file is charged for it once it was paged out of its
// mappings.
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
		s.passes.tools.procs.process = func(_ string, of int, in writeback.Inode, _, _ int64, _ int) (int, error) {
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
