package plugin

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
)

// fakeWatch is a watch that fails when told to.
type fakeWatch struct {
	added  []string
	fail   chan error
	closed bool
}

func (w *fakeWatch) Add(c cgroupfs.Cgroup) error {
	w.added = append(w.added, c.Path())
	return nil
}

func (w *fakeWatch) Run(ctx context.Context, _ func(error), _ func(*cgroupfs.Held)) error {
	select {
	case err := <-w.fail:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *fakeWatch) Close() error {
	w.closed = true
	return nil
}

// TestWatchFails: a watch that has failed is closed and not used any more; another one
// holds all containers again. A failure that lasts is logged every ten minutes.
func TestWatchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := tree(t, podCgroup, cgroupOf("a"))
		p := newPlugin(t, h)
		log, hook := test.NewNullLogger()
		p.log = log
		var watches []*fakeWatch
		var refused atomic.Bool
		p.exits.newWatch = func() (runningWatch, error) {
			if refused.Load() {
				return nil, errors.New("too many open files")
			}
			watches = append(watches, &fakeWatch{fail: make(chan error)})
			return watches[len(watches)-1], nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		go p.watchExits(ctx)
		synctest.Wait()
		if err := p.start(ctx, sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"}), ctr("a"), true); err != nil {
			t.Fatal(err)
		}
		c := p.pods["sb1"].containers["id-a"]
		first := watches[0]
		if c.life.Phase() != lifecycle.Watched || len(first.added) != 1 {
			t.Fatalf("%v, added %v", c.life.Phase(), first.added)
		}
		wantWatch(t, p, 1)

		refused.Store(true)
		hook.Reset()
		first.fail <- errors.New("bad file descriptor")
		synctest.Wait()
		if c.life.Phase() != lifecycle.Running || !first.closed {
			t.Errorf("after the failure: %v, closed %t", c.life.Phase(), first.closed)
		}
		wantWatch(t, p, 0)
		p.pass(ctx)
		sleep(25 * time.Minute)
		if n := len(hook.AllEntries()); n != 3 {
			t.Errorf("%d lines in 25 minutes, want 3", n)
		}

		refused.Store(false)
		sleep(2 * watchPauseMax)
		for _, g := range p.takeDirty() {
			p.reconcileGroup(ctx, g)
		}
		if last := watches[len(watches)-1]; c.life.Phase() != lifecycle.Watched || len(last.added) != 1 || len(first.added) != 1 {
			t.Errorf("again: %v, added %v, to the first %v", c.life.Phase(), last.added, first.added)
		}
		cancel()
		synctest.Wait()
	})
}

func wantWatch(t *testing.T, p *Plugin, want float64) {
	t.Helper()
	if got := scrape(t, p)["exit_watch"]; got != want {
		t.Errorf("exit_watch is %v, want %v", got, want)
	}
}
