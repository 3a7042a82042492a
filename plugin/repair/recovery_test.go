package repair

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/policy"
)

// recovers makes a Repairer recover from panics, and returns the steps whose panics were logged.
func recovers(r *Repairer) (steps func() []string) {
	log, hook := logtest.NewNullLogger()
	r.problems.recovery = recovery.New(log)
	r.passes.tools.procs.recovery = r.problems.recovery
	return func() (out []string) {
		for _, e := range hook.AllEntries() {
			out = append(out, fmt.Sprint(e.Data["step"]))
		}
		return out
	}
}

// TestRunGoesOn verifies that the Repairer continues after a turn that panics, without using a CPU. It
// continues with a new ledger, because the old one may have been changed in part.
func TestRunGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodeTest(t)
		steps := recovers(n.Repairer)
		n.ledger.strict, n.ledger.full, n.ledger.gaveUp = true, 7, 3
		old := n.ledger
		var reads atomic.Int64
		n.observer.read = func() []writeback.Dirtied {
			if reads.Add(1) <= 20 {
				panic("no such file")
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		go n.Run(ctx)
		for _, tt := range []struct {
			pauses   time.Duration
			min, max int64 // reads so far
		}{{10, 10, 11}, {20, 25, 1000}} {
			time.Sleep(tt.pauses*recovery.Pause + recovery.Pause/2)
			if got := reads.Load(); got < tt.min || got > tt.max {
				t.Errorf("%d reads after %d more pauses, want %d to %d", got, tt.pauses, tt.min, tt.max)
			}
		}
		cancel()
		synctest.Wait()
		if n.ledger == old || n.ledger.full != 7 || n.ledger.gaveUp != 3 {
			t.Errorf("the ledger is the old one: %t, or has lost its counts: %+v", n.ledger == old, n.ledger)
		}
		if diff := cmp.Diff([]string{"move files"}, steps()); diff != "" {
			t.Error(diff)
		}
		if !n.observer.closed {
			t.Error("the programs are still loaded")
		}
	})
}

// TestPassPanics verifies that the files of a pass that panicked count as failed and rest, and that another
// pass can begin.
func TestPassPanics(t *testing.T) {
	n := newNodeTest(t)
	steps := recovers(n.Repairer)
	n.passes.run = func(*worker, []visit) passed { panic("no such page") }
	n.writes(n.watches(0), "one", "a", 2)
	if got := n.acts(); got["one"] != 2 {
		t.Fatalf("passes are over %v", got)
	}
	n.note(n.now, <-n.passes.ended)
	if len(n.passes.busy)+len(n.passes.byAccount)+len(n.passes.visiting) > 0 {
		t.Errorf("left: %v %v %v", n.passes.busy, n.passes.byAccount, n.passes.visiting)
	}
	for _, f := range n.ledger.files {
		if reported(f.state.State()) != StateFailed || f.repair.failure != errPanicked.Error() || !f.rest.lasts(n.now) {
			t.Errorf("the file is %+v", f)
		}
	}
	if got := n.metrics.failed.Load(); got != 2 {
		t.Errorf("%d failures are counted, want 2", got)
	}
	if diff := cmp.Diff([]string{"pass over files"}, steps()); diff != "" {
		t.Error(diff)
	}
}

// TestPageOutPanics verifies that a cgroup does not stay busy after a panic in the reader of its processes.
func TestPageOutPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, hook := logtest.NewNullLogger()
		p := newPagedOut(t, "10\n", func(int) (int, error) { panic("no such mapping") })
		p.recovery = recovery.New(log)
		p.pageOut("pod", writeback.Inode{}, []string{"c"}, 0, 1)
		synctest.Wait()
		if len(p.busy)+len(p.byAccount) > 0 || len(hook.AllEntries()) != 1 {
			t.Errorf("busy are %v of %v, %d lines are logged", p.busy, p.byAccount, len(hook.AllEntries()))
		}
	})
}

// TestSimulationPanics verifies that files are moved after a panic as they are before it.
func TestSimulationPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(t, policy.Default())
		steps := recovers(s.Repairer)
		run, panicked := s.passes.run, false
		s.passes.run = func(w *worker, visits []visit) passed {
			if !panicked {
				panicked = true
				panic("no such page")
			}
			return run(w, visits)
		}
		f := s.file(1, s.x)
		s.run(func() {
			s.writes(f, 10*time.Second, writer{cgroup: s.a, pages: 4, step: 4, every: 20 * time.Millisecond})
		})
		if s.ownerOf(f) != s.a {
			t.Errorf("the file is owned by %d, want %d", s.ownerOf(f), s.a)
		}
		if diff := cmp.Diff([]string{"pass over files"}, steps()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestStepsOfTests verifies that, without a Recovery, a panic of a turn is not recovered, so that tests fail.
func TestStepsOfTests(t *testing.T) {
	n := newNodeTest(t)
	n.watches(0)
	n.observer.read = func() []writeback.Dirtied { panic("no such file") }
	defer func() {
		if recover() == nil {
			t.Error("the panic is hidden")
		}
	}()
	n.Run(t.Context())
}
