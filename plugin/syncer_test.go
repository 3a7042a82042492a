package plugin

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
)

var sda, sdb = blkio.Dev{Major: 8}, blkio.Dev{Major: 8, Minor: 16}

// TestSyncer: one sync at a time for each disk, however many want one; who came
// while it was under way gets another; one that hangs keeps no other disk waiting.
func TestSyncer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, hook := test.NewNullLogger()
		hangs, sameDisk, free := volume{"/hangs", sda}, volume{"/same-disk", sda}, volume{"/free", sdb}
		began, release := map[string]int{}, make(chan struct{})
		var mu sync.Mutex // guards began and done
		s := syncer{log: log, do: func(ctx context.Context, path string) error {
			mu.Lock()
			began[path]++
			mu.Unlock()
			if path == free.path {
				return nil
			}
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}}
		ctx, cancel := context.WithCancel(t.Context())
		var done []error
		want := func(v volume) {
			s.soon(ctx, v, func(err error) {
				mu.Lock()
				defer mu.Unlock()
				done = append(done, err)
			})
		}

		want(hangs)
		synctest.Wait()
		for range 5 {
			want(hangs)
		}
		want(sameDisk)
		want(free)
		synctest.Wait()
		if began[hangs.path] != 1 || began[sameDisk.path] != 0 || began[free.path] != 1 || len(done) != 1 {
			t.Fatalf("begun %v, done %d", began, len(done))
		}
		time.Sleep(2 * syncPatience)
		if n := len(hook.AllEntries()); n != 1 {
			t.Errorf("%d lines of one that hangs, want 1", n)
		}
		release <- struct{}{}
		release <- struct{}{} // of the same disk, or of who came since
		synctest.Wait()
		if began[hangs.path]+began[sameDisk.path] != 3 {
			t.Errorf("after two: begun %v, done %d", began, len(done))
		}
		cancel() // the last one
		synctest.Wait()
		if len(done) != 8 || len(s.waiting) != 0 {
			t.Errorf("done %v, left %v", done, s.waiting)
		}
		if err := syncNow(&s, free); err != nil {
			t.Error(err)
		}
	})
}

// syncNow has it synced, and waits for that.
func syncNow(s *syncer, v volume) error {
	done := make(chan error)
	s.soon(context.Background(), v, func(err error) { done <- err })
	return <-done
}
