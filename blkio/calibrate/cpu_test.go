package calibrate

import (
	"testing"
	"time"
)

// TestProcessorTime verifies that the time grows while a processor is used.
func TestProcessorTime(t *testing.T) {
	before := processorTime()
	if before == 0 {
		return // not known on this system
	}
	for start := time.Now(); processorTime()-before < 10*time.Millisecond; { // others may have the processors for a while
		if time.Since(start) > time.Minute {
			t.Fatalf("%v, and %v a minute later", before, processorTime())
		}
	}
}
