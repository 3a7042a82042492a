package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPaced verifies that the first call is at once, that the calls of a burst become one after the pause, and that none
// comes after the end.
func TestPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var got []time.Duration
		soon := paced(ctx, time.Second, func() { got = append(got, time.Since(began)) })
		time.Sleep(100 * time.Millisecond)
		for range 25 { // 2.5 s
			soon()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		soon()
		synctest.Wait()
		ms := time.Millisecond
		if d := cmp.Diff([]time.Duration{100 * ms, 1100 * ms, 2100 * ms, 3100 * ms, 12600 * ms}, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		cancel()
		synctest.Wait()
		soon()
		synctest.Wait()
		if len(got) != 5 {
			t.Errorf("called after the end: %v", got)
		}
	})
}
