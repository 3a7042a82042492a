package handover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
)

// recovering returns a Recovery, and the steps whose panics it has logged.
func recovering() (r *recovery.Recovery, steps func() []string) {
	log, hook := logtest.NewNullLogger()
	return recovery.New(log), func() (out []string) {
		for _, e := range hook.AllEntries() {
			out = append(out, fmt.Sprint(e.Data["step"]))
		}
		return out
	}
}

// panicking is fakeContainers with a method that panics.
type panicking struct {
	*fakeContainers
	at string
}

func (p *panicking) here(method string) {
	if p.at == method {
		panic("no such key")
	}
}

func (p *panicking) Ended(cgroup string) Ended {
	p.here("Ended")
	return &panickingEnded{&fakeEnded{p.fakeContainers}, p}
}

type panickingEnded struct {
	*fakeEnded
	p *panicking
}

func (e *panickingEnded) Limits() []blkio.Line {
	e.p.here("Limits")
	return e.fakeEnded.Limits()
}

func (e *panickingEnded) Lifted(yes bool) {
	e.p.here("Lifted")
	e.fakeEnded.Lifted(yes)
}

// TestExitedPanics verifies that after a panic at the exit of a container no descriptor stays open, and that
// the pod does not count as in use. The kernel counts the data that the container has not written.
func TestExitedPanics(t *testing.T) {
	for at, tt := range map[string]struct {
		want  []string
		steps []string
	}{
		"Ended":  {[]string{"close"}, []string{"lift limits of an ended container"}},
		"Limits": {[]string{"written id-a false", "close"}, []string{"lift limits of an ended container"}},
		"Lifted": {[]string{"lift 0", "lift 0", "written id-a false", "close"}, []string{"hand over data of an ended container"}},
	} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, _ := logtest.NewNullLogger()
				r, steps := recovering()
				c := &panicking{&fakeContainers{counts: true}, at}
				e := &Exits{Log: log, Containers: c, Writeout: &Writeout{Tidy: func(context.Context, Pod) {}}, Recovery: r}
				e.Exited(t.Context(), &fakeOpenCgroup{c.fakeContainers, "a", nil})
				sleep(2 * liftWait)
				if diff := cmp.Diff(tt.want, c.taken()); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff(tt.steps, steps()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// panickingKernel is a watch that panics.
type panickingKernel struct{ fakeKernel }

func (k *panickingKernel) Run(context.Context, func(error), func(*cgroupfs.OpenCgroup)) error {
	panic("no such key")
}

// TestWatchPanics verifies that after a panic the watch is closed, and that another one is opened after a
// pause.
func TestWatchPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, hook := logtest.NewNullLogger()
		r, _ := recovering()
		c, broken, working := &fakeContainers{}, &panickingKernel{}, &fakeKernel{}
		var opened atomic.Int64
		e := &Exits{Log: log, Containers: c, Recovery: r, Open: func() (Kernel, error) {
			if opened.Add(1) <= 3 {
				return broken, nil
			}
			return working, nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		go e.Watch(ctx)
		synctest.Wait()
		if opened.Load() != 1 || !broken.closed.Load() || c.watching.Load() != nil {
			t.Errorf("opened %d times, closed %t, watching %v", opened.Load(), broken.closed.Load(), c.watching.Load())
		}
		sleep(3 * watchPause)
		if opened.Load() != 4 || !c.isWatched(working) {
			t.Errorf("opened %d times, watching %v", opened.Load(), c.watching.Load())
		}
		if n := len(hook.AllEntries()); n != 1 {
			t.Errorf("%d lines are logged, want 1", n)
		}
		cancel()
		synctest.Wait()
	})
}

// TestSyncPanics verifies that hand-overs get an error from a sync that panicked, and that a hand-over that
// panics does not affect the others. The filesystem is synced again after a rest.
func TestSyncPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, _ := logtest.NewNullLogger()
		r, steps := recovering()
		v := Volume{Path: "/data", Disk: sda}
		calls := syncLog{began: map[string]int{}, free: v.Path}
		var panics atomic.Int64
		s := Syncer{Log: log, Recovery: r, Sync: func(ctx context.Context, path string) error {
			if err := calls.sync(ctx, path); panics.Add(1) > 2 {
				return err
			}
			panic("no such key")
		}}
		want := func(done func(error)) { s.request(t.Context(), waiter{v, nil, notOver, done}) }
		wantDone := func(syncs, hands int, err error) {
			t.Helper()
			if began, all := calls.of(v); began != syncs || all != hands || !errors.Is(calls.newest(), err) {
				t.Fatalf("%d syncs, %d hand-overs are done, the last one with %v", began, all, calls.newest())
			}
		}
		want(calls.handOver)
		wantDone(1, 1, errPanicked)
		want(func(error) { panic("no such pod") })
		want(calls.handOver)
		wantDone(1, 1, errPanicked) // it rests
		sleep(minRest)
		wantDone(2, 2, errPanicked)
		want(calls.handOver)
		sleep(minRest)
		wantDone(3, 3, nil)
		if ok, failed := s.OK.Load(), s.Failed.Load(); ok != 1 || failed != 2 {
			t.Errorf("%d synced, %d failed", ok, failed)
		}
		if diff := cmp.Diff([]string{"sync a filesystem", "note the sync of a filesystem"}, steps()); diff != "" {
			t.Error(diff)
		}
		sleep(maxRest)
		if syncs, waiting := s.Pending(); syncs+waiting+len(s.waiting) != 0 {
			t.Errorf("%d syncs are under way, %d wait, waiting has %v", syncs, waiting, s.waiting)
		}
	})
}

// newest returns the error of the last hand-over that is done.
func (l *syncLog) newest() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done[len(l.done)-1]
}

// panickingPod panics when something asks whether it is drained, or notes what is written.
type panickingPod struct {
	fakePod
	written bool
}

func (p *panickingPod) IsDrained() bool { panic("no such pod") }

func (p *panickingPod) Written(id string, yes bool) {
	if p.written {
		panic("no such pod")
	}
	p.fakePod.Written(id, yes)
}

// TestTidyPanics verifies that Tidy gives its turn back after a panic of the pod, and then takes its next step.
func TestTidyPanics(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("io\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h, err := cgroupfs.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	log, _ := logtest.NewNullLogger()
	r, steps := recovering()
	released := false
	tidier := &Tidier{Log: log, Cgroups: h, Turn: make(chan struct{}, 1), Recovery: r, Releases: func() bool { released = true; return false }}
	for range 2 {
		tidier.Tidy(t.Context(), &panickingPod{fakePod: fakePod{cgroup: "kubepods/pod1"}})
	}
	if !released || len(tidier.Turn) != 0 {
		t.Errorf("released: %t, turns taken: %d", released, len(tidier.Turn))
	}
	if diff := cmp.Diff([]string{"drop the page cache of an ended pod"}, steps()); diff != "" {
		t.Error(diff)
	}
}

// TestSlowHandOverPanics verifies that a panic in the timer that ends a slow hand-over is recovered.
func TestSlowHandOverPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, steps := recovering()
		w := Writeout{Tidy: func(context.Context, Pod) {}, Recovery: r}
		w.Syncs.Log, _ = logtest.NewNullLogger()
		w.Syncs.Sync = func(context.Context, string) error { time.Sleep(time.Hour); return nil }
		w.Write(t.Context(), &panickingPod{written: true}, "x", Unsynced{Volumes: []Volume{{Path: "/data", Disk: sda}}})
		sleep(syncPatience)
		if diff := cmp.Diff([]string{"end a slow hand-over"}, steps()); diff != "" {
			t.Error(diff)
		}
		sleep(2 * time.Hour)
	})
}
