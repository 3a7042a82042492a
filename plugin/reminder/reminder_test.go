package reminder

import (
	"errors"
	"testing"
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
		if r.Lasts() != (step.err != nil) {
			t.Errorf("step %d: lasts: %v", i, r.Lasts())
		}
	}
}
