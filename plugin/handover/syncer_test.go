package handover

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
)

var sda, sdb = blkio.Dev{Major: 8}, blkio.Dev{Major: 8, Minor: 16}

// syncLog notes the syncs that have begun, and the hand-overs that are done. Each sync hangs until it is
// released, except that of the path free.
type syncLog struct {
	free    string
	release chan struct{}
	mu      sync.Mutex // guards the other fields
	began   map[string]int
	done    []error
}

func (l *syncLog) sync(ctx context.Context, path string) error {
	l.mu.Lock()
	l.began[path]++
	l.mu.Unlock()
	if path == l.free {
		return nil
	}
	select {
	case <-l.release:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *syncLog) handOver(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = append(l.done, err)
}

// of returns the number of syncs of a volume that have begun, and the number of hand-overs that are done.
func (l *syncLog) of(v Volume) (begun, hands int) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.began[v.Path], len(l.done)
}

// TestSyncer verifies that each disk has one sync at a time, however many hand-overs request one. Hand-overs
// that begin during a sync get another one, and a sync that hangs delays no other disk.
func TestSyncer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, hook := test.NewNullLogger()
		hangs, sameDisk, free := Volume{Path: "/hangs", Disk: sda}, Volume{Path: "/same-disk", Disk: sda}, Volume{Path: "/free", Disk: sdb}
		calls := syncLog{free: free.Path, release: make(chan struct{}), began: map[string]int{}}
		s := Syncer{Log: log, Sync: calls.sync}
		ctx, cancel := context.WithCancel(t.Context())
		want := func(v Volume) { s.request(ctx, waiter{v, nil, notOver, calls.handOver}) }

		want(hangs)
		synctest.Wait()
		for range 5 {
			want(hangs)
		}
		want(sameDisk)
		want(free)
		first, _ := calls.of(hangs)
		second, _ := calls.of(sameDisk)
		if third, hands := calls.of(free); first != 1 || second != 0 || third != 1 || hands != 1 {
			t.Fatalf("begun %d, %d, %d; done %d", first, second, third, hands)
		}
		sleep(syncPatience)
		if second, _ := calls.of(sameDisk); second != 1 || len(hook.AllEntries()) != 1 {
			t.Errorf("%d lines of one that hangs, want 1; begun %d of the same disk", len(hook.AllEntries()), second)
		}
		calls.release <- struct{}{}
		calls.release <- struct{}{}
		sleep(maxRest)
		if begun, hands := calls.of(hangs); begun != 2 || hands != 3 {
			t.Errorf("requests during the sync: %d syncs and %d hand-overs, want 2 and 3", begun, hands)
		}
		cancel()
		if _, hands := calls.of(hangs); hands != 8 || len(s.waiting) != 0 {
			t.Errorf("done %v, left %v", hands, s.waiting)
		}
		if err := syncNow(&s, free); err != nil {
			t.Error(err)
		}
		sleep(maxRest) // until the filesystem has rested
	})
}

// syncNow syncs a volume and waits for the result.
func syncNow(s *Syncer, v Volume) error {
	done := make(chan error)
	s.request(context.Background(), waiter{v, nil, notOver, func(err error) { done <- err }})
	return <-done
}

func notOver() bool { return false }

// counting is a syncer with syncs of a fixed duration. It notes when each one began.
type counting struct {
	Syncer
	t     *testing.T
	mu    sync.Mutex     // guards began
	began map[string]int // by path
}

func newCounting(t *testing.T, take map[string]time.Duration) *counting {
	log, _ := test.NewNullLogger()
	c := &counting{t: t, began: map[string]int{}}
	c.Log = log
	c.Sync = func(_ context.Context, path string) error {
		c.count(path)
		time.Sleep(take[path])
		return nil
	}
	return c
}

func (c *counting) count(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began[path]++
}

// syncs returns the number of syncs that have begun, of all filesystems and of one.
func (c *counting) syncs(path string) (all, one int) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.began {
		all += n
	}
	return all, c.began[path]
}

// isIdle reports whether no filesystem is synced or rests.
func (c *counting) isIdle() bool {
	c.Syncer.mu.Lock()
	defer c.Syncer.mu.Unlock()
	return len(c.waiting) == 0
}

func (c *counting) want(v Volume, pod Pod, done func(error)) {
	c.request(c.t.Context(), waiter{v, pod, notOver, done})
}

func ignore(error) {}

// TestSyncsRest verifies that many short containers do not cause back-to-back syncs of a filesystem. It rests
// in proportion to the duration of a sync, and all hand-overs that begin meanwhile share one sync.
func TestSyncsRest(t *testing.T) {
	for took, syncs := range map[time.Duration]int{
		0:                      60, // one sync a second
		time.Second:            12, // a fifth of the time
		4 * time.Second:        3,
		30 * time.Second:       1,
		100 * time.Millisecond: 55,
	} {
		synctest.Test(t, func(t *testing.T) {
			root := Volume{Path: "/", Disk: sda}
			c := newCounting(t, map[string]time.Duration{"/": took})
			done := 0
			for i := range 600 {
				c.want(root, &fakePod{}, func(error) { done++ })
				if i == 0 {
					if _, n := c.syncs("/"); n != 1 {
						t.Error("the first one waits")
					}
				}
				sleep(100 * time.Millisecond)
			}
			if got, _ := c.syncs("/"); got > syncs+1 || got < syncs-1 {
				t.Errorf("%d syncs of %v in a minute, want %d", got, took, syncs)
			}
			sleep(5 * time.Minute)
			if done != 600 || !c.isIdle() {
				t.Errorf("%d are done, idle: %t", done, c.isIdle())
			}
		})
	}
}

// TestSyncsOneFilesystem verifies that two mounts of one filesystem share a sync.
func TestSyncsOneFilesystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounting(t, nil)
		fs, done := blkio.Dev{Major: 8, Minor: 1}, 0
		for _, path := range []string{"/a", "/b", "/c", "/d"} {
			c.want(Volume{path, sda, fs}, nil, func(error) { done++ })
		}
		sleep(time.Minute)
		if syncs, _ := c.syncs(""); syncs > 2 || done != 4 {
			t.Errorf("%d syncs for %d hand-overs", syncs, done)
		}
	})
}

// TestSlowSyncs verifies that a sync that takes hours delays the disk's other filesystems for a minute only,
// and that the number of such syncs is bounded.
func TestSlowSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		take := map[string]time.Duration{}
		for _, path := range []string{"/1", "/2", "/3", "/4", "/5"} {
			take[path] = 3 * time.Hour
		}
		c := newCounting(t, take)
		c.want(Volume{Path: "/1", Disk: sda}, nil, ignore)
		synctest.Wait()
		c.want(Volume{Path: "/other", Disk: sda}, nil, ignore)
		sleep(syncPatience + time.Second)
		if _, n := c.syncs("/other"); n != 1 {
			t.Error("another filesystem of the disk is not synced")
		}
		for path := range take {
			if path != "/1" {
				c.want(Volume{Path: path, Disk: sda}, nil, ignore)
			}
		}
		sleep(time.Hour)
		if all, _ := c.syncs(""); all != maxDiskSyncs+1 { // and the other one
			t.Errorf("%d syncs of a disk are under way, want %d", all-1, maxDiskSyncs)
		}
		sleep(6 * time.Hour)
		if all, _ := c.syncs(""); all != len(take)+1 || !c.isIdle() {
			t.Errorf("%d syncs, idle: %t", all, c.isIdle())
		}
	})
}

// TestSyncsFull verifies that the number of hand-overs that wait for a slow sync is bounded, for each pod and
// in all. Hand-overs that do not need the sync any more make room.
func TestSyncsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := Volume{Path: "/", Disk: sda}
		c := newCounting(t, map[string]time.Duration{"/": time.Hour})
		c.want(root, nil, ignore)
		synctest.Wait()
		refused := 0
		count := func(err error) {
			if errors.Is(err, errSyncsFull) {
				refused++
			}
		}
		hostile := &fakePod{}
		for range 100 {
			c.want(root, hostile, count)
		}
		if refused != 100-maxPodWaiting {
			t.Errorf("%d of one pod wait", 100-refused)
		}
		refused = 0
		over := false
		for range 2 * maxWaiting {
			c.request(t.Context(), waiter{root, &fakePod{}, func() bool { return over }, count})
		}
		if want := maxWaiting + maxPodWaiting; refused != want {
			t.Errorf("%d are refused, want %d", refused, want)
		}
		refused, over = 0, true
		if c.want(root, &fakePod{}, count); refused != 0 {
			t.Error("there is no room after others have left")
		}
		sleep(5 * time.Hour)
	})
}

// sleep waits for d, and then until all goroutines that were to run at that time are blocked.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
