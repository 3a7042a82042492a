package queue

import (
	"testing"
	"time"
)

// TestPace verifies that ten changes count at once, then one every ten seconds, and that a pause makes up for no more than ten.
func TestPace(t *testing.T) {
	var p Pace
	now := time.Unix(1e9, 0)
	count := func() (n int) {
		for ; !p.Due().After(now); n++ {
			p.Pay(now)
		}
		return n
	}
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{0, 10}, {9 * time.Second, 0}, {time.Second, 1}, {20 * time.Second, 2}, {time.Hour, 10}} {
		now = now.Add(step.after)
		if got := count(); got != step.want {
			t.Errorf("after %v: %d changes count, want %d", step.after, got, step.want)
		}
	}
}
