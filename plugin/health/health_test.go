package health

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
)

func TestWriteAndRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "absent")
	if r, err := Read(dir, Limits); r != nil || err != nil {
		t.Errorf("without a file: %v, %v", r, err)
	}
	want := Report{Part: Limits, At: time.Now().UTC().Truncate(time.Second), State: Connected, Runtime: "containerd 2", Pods: 3}
	if err := hostfs.WriteJSON(File(dir, Limits), &want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir, Limits)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	want.At = want.At.Add(-time.Hour)
	if err := hostfs.WriteJSON(File(dir, Limits), &want); err != nil {
		t.Fatal(err)
	}
	if r, err := Read(dir, Limits); r != nil || err != nil {
		t.Errorf("an old report: %v, %v", r, err)
	}
	if err := os.WriteFile(File(dir, Limits), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir, Limits); err == nil {
		t.Error("a broken report is no error")
	}
}

// TestPublish: the file has the state of an instance that is active, and is
// removed when that ends. An instance on standby leaves the file alone.
func TestPublish(t *testing.T) {
	file := File(t.TempDir(), Limits)
	if err := os.WriteFile(file, []byte("the active one's"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var state atomic.Value
		state.Store(Standby)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			Publish(ctx, file, func() Report { return Report{State: state.Load().(string)} }, func(err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}()
		time.Sleep(3 * Interval)
		if data, _ := os.ReadFile(file); string(data) != "the active one's" {
			t.Errorf("an instance on standby has written %q", data)
		}
		state.Store(Disconnected)
		time.Sleep(2 * Interval)
		var r Report
		if _, err := hostfs.ReadJSON(file, &r); err != nil || r.State != Disconnected || !r.At.Equal(time.Now().UTC()) && IsOld(r.At, r.SinceBoot) {
			t.Errorf("read %v, %v", r, err)
		}
		cancel()
		<-ended
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// TestPublishFails: the caller is told of each failure, and of the end of them.
func TestPublishFails(t *testing.T) {
	dir := t.TempDir()
	blocked := filepath.Join(dir, "blocked")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 8)
		go Publish(ctx, filepath.Join(blocked, "limits.json"), func() Report { return Report{State: Connected} }, func(err error) { errs <- err })
		if err := <-errs; err == nil {
			t.Error("no error")
		}
		if err := os.Remove(blocked); err != nil {
			t.Fatal(err)
		}
		if err := <-errs; err != nil {
			t.Error(err)
		}
		cancel()
		synctest.Wait()
	})
}

// TestClockJumps: how old a report is does not depend on the node's clock, which may have jumped since. One
// from before the node's boot is old. Without the time since the boot the clock decides.
func TestClockJumps(t *testing.T) {
	const jump = time.Hour
	for _, tt := range []struct {
		name   string
		jumped time.Duration
		ago    time.Duration
		boot   bool // the report has the time since the boot
		want   bool
	}{
		{"new", 0, time.Second, true, false},
		{"old", 0, maxAge + time.Second, true, true},
		{"new, before the clock was set back", -jump, time.Second, true, false},
		{"old, before the clock was set back", -jump, maxAge + time.Second, true, true},
		{"new, before the clock was set ahead", jump, time.Second, true, false},
		{"old, before the clock was set ahead", jump, maxAge + time.Second, true, true},
		{"of another boot", 0, -time.Hour, true, true},
		{"new, of an earlier version", 0, time.Second, false, false},
		{"old, of an earlier version", 0, maxAge + time.Second, false, true},
	} {
		at, sinceBoot := time.Now().Add(-tt.jumped-tt.ago), time.Duration(0)
		if tt.boot {
			sinceBoot = hostfs.SinceBoot() - tt.ago
		}
		if got := IsOld(at, sinceBoot); got != tt.want {
			t.Errorf("%s: old is %t", tt.name, got)
		}
	}
}
