package calibrate

import (
	"testing"
	"time"
)

// TestProcessorTime verifies that the time grows while a processor is used.
func TestProcessorTime(t *testing.T) {
	before := processorTime()
	for start := time.Now(); time.Since(start) < 20*time.Millisecond; {
	}
	if after := processorTime(); before != 0 && after-before < 10*time.Millisecond {
		t.Errorf("%v, then %v", before, after)
	}
}
