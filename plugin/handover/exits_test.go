package handover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// events has the events so far, in their order.
type events struct {
	mu  sync.Mutex // guards all fields
	all []string
}

func (e *events) add(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, fmt.Sprintf(format, args...))
}

// taken returns the events so far.
func (e *events) taken() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// fakeContainers has one container, with the cgroup "a".
type fakeContainers struct {
	events
	watching atomic.Pointer[Adder]
	lines    []blkio.Line
	counts   bool
	writing  bool // another goroutine writes for as long as the hand-over waits for it
}

func (f *fakeContainers) Watching(w Adder) { f.watching.Store(&w) }
func (f *fakeContainers) Lost()            { f.watching.Store(nil) }

// isWatched reports whether this kernel is the one in use.
func (f *fakeContainers) isWatched(k *fakeKernel) bool {
	now := f.watching.Load()
	return now != nil && *now == Adder(k)
}

func (f *fakeContainers) Ended(cgroup string) Ended {
	if cgroup != "a" {
		return nil
	}
	return &fakeEnded{f}
}

type fakeEnded struct{ *fakeContainers }

func (f *fakeEnded) Limits() []blkio.Line { return f.lines }
func (f *fakeEnded) Counts() bool         { return f.counts }
func (f *fakeEnded) Lifted(yes bool)      { f.add("lifted %t", yes) }

func (f *fakeEnded) Alone(ctx context.Context, fn func()) {
	if f.writing {
		<-ctx.Done()
	}
	fn()
}

func (f *fakeEnded) Leftovers() *Leftovers { return &Leftovers{ID: "id-a", Pod: f} }

func (f *fakeEnded) Written(id string, yes bool) { f.add("written %s %t", id, yes) }
func (f *fakeEnded) Cgroup() string              { return "" }
func (f *fakeEnded) IsDrained() bool             { return false }

func (f *fakeEnded) Log() logrus.FieldLogger {
	log, _ := logtest.NewNullLogger()
	return log
}

// fakeKernel is a watch that fails when fail is called.
type fakeKernel struct {
	fail   chan error
	closed atomic.Bool
}

func (k *fakeKernel) Add(cgroupfs.Cgroup) error { return nil }

func (k *fakeKernel) Run(ctx context.Context, _ func(error), _ func(*cgroupfs.OpenCgroup)) error {
	select {
	case err := <-k.fail:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *fakeKernel) Close() error {
	k.closed.Store(true)
	return nil
}

// fakeKernels opens one watch after another, or returns an error.
type fakeKernels struct {
	mu      sync.Mutex
	opened  []*fakeKernel
	refused error
}

func (k *fakeKernels) open() (Kernel, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refused != nil {
		return nil, k.refused
	}
	k.opened = append(k.opened, &fakeKernel{fail: make(chan error)})
	return k.opened[len(k.opened)-1], nil
}

func (k *fakeKernels) refuse(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refused = err
}

func (k *fakeKernels) newest() *fakeKernel {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.opened[len(k.opened)-1]
}

// fakeOpenCgroup is a cgroup that answers a write with an error.
type fakeOpenCgroup struct {
	*fakeContainers
	path   string
	answer error
}

func (h *fakeOpenCgroup) Path() string { return h.path }

func (h *fakeOpenCgroup) Lift(lines []blkio.Line) error {
	h.add("lift %d", len(lines))
	return h.answer
}

func (h *fakeOpenCgroup) Close() { h.add("close") }

// TestExited verifies that the limits are lifted first, and once more when no other goroutine writes to the
// cgroups. The result is counted if there was a limit and no other event reported the end.
func TestExited(t *testing.T) {
	lines := []blkio.Line{{File: blkio.IOMax, Text: "8:0 wbps=max"}}
	all := func(lifted bool, n int) []string {
		return []string{fmt.Sprintf("lift %d", n), fmt.Sprintf("lift %d", n), fmt.Sprintf("lifted %t", lifted), "written id-a true", "close"}
	}
	for _, tt := range []struct {
		name              string
		containers        *fakeContainers
		cgroup            string
		answer            error
		want              []string
		won, lost, failed int64
	}{
		{name: "lifted", containers: &fakeContainers{lines: lines, counts: true}, cgroup: "a", want: all(true, 1), won: 1},
		{name: "beside a writer", containers: &fakeContainers{lines: lines, counts: true, writing: true}, cgroup: "a", want: all(true, 1), won: 1},
		{name: "removed before", containers: &fakeContainers{lines: lines, counts: true}, cgroup: "a", answer: fmt.Errorf("write io.max: %w", blkio.ErrGone), want: all(false, 1), lost: 1},
		{name: "refused", containers: &fakeContainers{lines: lines, counts: true}, cgroup: "a", answer: errors.New("input/output error"), want: all(false, 1), failed: 1},
		{name: "without limits", containers: &fakeContainers{counts: true}, cgroup: "a", want: all(true, 0)},
		{name: "reported before", containers: &fakeContainers{lines: lines}, cgroup: "a", want: all(true, 1)},
		{name: "not known", containers: &fakeContainers{}, cgroup: "b", want: []string{"close"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, _ := logtest.NewNullLogger()
				c := tt.containers
				e := &Exits{Log: log, Containers: c, Writeout: &Writeout{Tidy: func(context.Context, Pod) {}}}
				e.Exited(t.Context(), &fakeOpenCgroup{c, tt.cgroup, tt.answer})
				if len(c.taken()) == 0 {
					t.Error("nothing is done before it returns")
				}
				time.Sleep(2 * liftWait)
				synctest.Wait()
				if diff := cmp.Diff(tt.want, c.taken()); diff != "" {
					t.Error(diff)
				}
				if got, want := []int64{e.Won.Load(), e.Lost.Load(), e.Failed.Load()}, []int64{tt.won, tt.lost, tt.failed}; !slices.Equal(got, want) {
					t.Errorf("won, lost, failed: %v, want %v", got, want)
				}
			})
		})
	}
}

// TestWatchFails verifies that a watch that has failed is closed and replaced by another one. Each failure is
// logged, and one that lasts every ten minutes.
func TestWatchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, hook := logtest.NewNullLogger()
		c := &fakeContainers{}
		kernel := &fakeKernels{}
		e := &Exits{Log: log, Containers: c, Open: kernel.open}
		ctx, cancel := context.WithCancel(t.Context())
		go e.Watch(ctx)
		synctest.Wait()
		first := kernel.newest()
		if !c.isWatched(first) {
			t.Fatal("not watching")
		}
		kernel.refuse(errors.New("too many open files"))
		first.fail <- errors.New("bad file descriptor")
		synctest.Wait()
		if c.watching.Load() != nil || !first.closed.Load() {
			t.Errorf("after the failure: watching %v, closed %t", c.watching.Load(), first.closed.Load())
		}
		time.Sleep(25 * time.Minute)
		synctest.Wait()
		if n := len(hook.AllEntries()); n != 4 {
			t.Errorf("%d lines in 25 minutes, want 4", n)
		}
		kernel.refuse(nil)
		time.Sleep(2 * watchPause)
		synctest.Wait()
		second := kernel.newest()
		if second == first || !c.isWatched(second) {
			t.Errorf("watching %v", c.watching.Load())
		}
		cancel()
		synctest.Wait()
		if c.watching.Load() != nil || !second.closed.Load() {
			t.Error("watching after the end")
		}
	})
}
