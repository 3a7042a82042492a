package weights

import (
	"testing"
	"time"
)

// TestPause verifies that passes that take long come less often, but not too seldom for weights to follow.
func TestPause(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0:                      2 * time.Second,
		4 * time.Millisecond:   2 * time.Second,
		11 * time.Millisecond:  5500 * time.Millisecond,
		16 * time.Millisecond:  8 * time.Second,
		100 * time.Millisecond: 8 * time.Second,
		time.Hour:              8 * time.Second,
	} {
		if got := pause(took); got != want {
			t.Errorf("after a pass of %v: %v, want %v", took, got, want)
		}
	}
}
