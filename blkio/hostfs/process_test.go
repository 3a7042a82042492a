package hostfs

import (
	"testing"
	"time"
)

// TestSinceStart verifies that the time grows from the start of this process on.
func TestSinceStart(t *testing.T) {
	first, err := SinceStart()
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	second, err := SinceStart()
	if err != nil || first < 0 || first > time.Hour || second-first < 20*time.Millisecond {
		t.Errorf("%v, then %v, %v", first, second, err)
	}
}
