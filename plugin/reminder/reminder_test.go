package reminder

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestDue(t *testing.T) {
	var r Reminder
	start := time.Unix(1e9, 0)
	away, busy := errors.New("away"), errors.New("busy")
	for i, step := range []struct {
		after time.Duration
		err   error
		want  bool
	}{
		{0, nil, false},
		{0, away, true},
		{time.Second, away, false},
		{time.Minute, busy, true},
		{time.Minute + time.Second, away, true},
		{Interval + time.Minute, away, false},
		{Interval + time.Minute + time.Second, away, true},
		{Interval + 2*time.Minute, nil, false},
		{Interval + 3*time.Minute, away, true},
	} {
		if got := r.Due(start.Add(step.after), step.err); got != step.want {
			t.Errorf("step %d, after %v, %v: %v, want %v", i, step.after, step.err, got, step.want)
		}
	}
}

// TestKeep verifies that a function that fails is called again, also after a success, and its error is logged
// once.
const pause = time.Minute

func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		away := errors.New("away")
		results := []error{away, away, nil, away}
		var calls []time.Duration
		logged := 0
		Keep(ctx, pause, func() error {
			calls = append(calls, time.Since(start))
			if len(calls) > len(results) {
				cancel()
				return away // not logged: the work has ended
			}
			return results[len(calls)-1]
		}, func(err error) {
			if !errors.Is(err, away) {
				t.Error(err)
			}
			logged++
		})
		want := []time.Duration{0, pause, 2 * pause, 3 * pause, 4 * pause}
		if !slices.Equal(calls, want) || logged != 2 {
			t.Errorf("called at %v, logged %d times", calls, logged)
		}
	})
}

// TestKeepEnds verifies that the pause ends with the context.
func TestKeepEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), pause/2)
		defer cancel()
		start := time.Now()
		Keep(ctx, pause, func() error { return nil }, func(err error) { t.Error(err) })
		if took := time.Since(start); took != pause/2 {
			t.Errorf("it took %v", took)
		}
	})
}
