package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func TestIsOfDisk(t *testing.T) {
	for message, want := range map[string]bool{
		"add@/devices/virtual/block/dm-0\x00ACTION=add\x00DEVPATH=/devices/virtual/block/dm-0\x00SUBSYSTEM=block\x00MAJOR=254\x00": true,
		"add@/devices/virtual/net/veth0\x00ACTION=add\x00SUBSYSTEM=net\x00INTERFACE=SUBSYSTEM=block\x00":                           false,
		"add@/devices/virtual/bdi/254:0\x00ACTION=add\x00SUBSYSTEM=bdi\x00":                                                        false,
		"": false,
	} {
		if got := isOfDisk([]byte(message)); got != want {
			t.Errorf("%q: got %t", message, got)
		}
	}
}

// script is a socket: messages and errors, then io.EOF.
type script []any

func (s *script) Read(b []byte) (int, error) {
	if len(*s) == 0 {
		return 0, io.EOF
	}
	next := (*s)[0]
	*s = (*s)[1:]
	if err, ok := next.(error); ok {
		return 0, err
	}
	return copy(b, next.(string)), nil
}

func TestListen(t *testing.T) {
	const disk, net = "add@/x\x00SUBSYSTEM=block\x00", "add@/x\x00SUBSYSTEM=net\x00"
	lost := fmt.Errorf("read uevents: %w", unix.ENOBUFS)
	for name, tt := range map[string]struct {
		socket  script
		reports bool
	}{
		"a disk":             {script{net, disk}, true},
		"messages were lost": {script{net, lost}, true},
		"others":             {script{net, net}, false},
		"after a loss":       {script{lost, net, disk}, true},
	} {
		events := make(chan struct{}, 1)
		if err := listen(&tt.socket, events); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
		if reports := len(events) == 1; reports != tt.reports {
			t.Errorf("%s: reports is %t", name, reports)
		}
	}
}

// TestDebounced verifies that a burst is reported once, and later events once more, within a second. Some seconds
// after the last event it is reported again.
func TestDebounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		events := make(chan struct{}, 1)
		var reports []time.Duration
		start := time.Now()
		go debounced(ctx, events, func() { reports = append(reports, time.Since(start)) })
		for range 20 { // for 200 ms
			select {
			case events <- struct{}{}:
			default:
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		events <- struct{}{}
		time.Sleep(repeatAfter + 10*time.Second)
		cancel()
		synctest.Wait()
		if len(reports) != 4 || reports[0] > burst || reports[1] > 2*debounce || reports[2] < 5*time.Second || reports[3]-reports[2] < repeatAfter-debounce {
			t.Errorf("reports at %v", reports)
		}
	})
}

// TestWatchSocketLeavesNothing verifies that after an error no goroutine is left, since the caller tries again
// and again. synctest fails where one is.
func TestWatchSocketLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 3 {
			if err := watchSocket(t.Context(), io.NopCloser(&script{}), func() {}); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		}
		synctest.Wait()
	})
}

func TestWatchDisksEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- WatchDisks(ctx, func() {}) }()
	time.Sleep(10 * time.Millisecond)
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("WatchDisks does not end with its context")
	}
}

// TestDebouncedEnds verifies that no event is reported after the end of the context, also within a burst.
func TestDebouncedEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		after   time.Duration // since an event
		reports int
	}{
		"within a burst":          {burst / 2, 0},
		"after the first report":  {burst + debounce/2, 1},
		"before the repetition":   {repeatAfter / 2, 1},
		"after the second report": {burst + repeatAfter + debounce/2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.after)
				defer cancel()
				events := make(chan struct{}, 1)
				events <- struct{}{}
				reports := 0
				start := time.Now()
				debounced(ctx, events, func() { reports++ })
				if took := time.Since(start); reports != tt.reports || took != tt.after {
					t.Errorf("%d reports, ended after %v", reports, took)
				}
			})
		})
	}
}
