package cgroup

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestMeasureBursts verifies that a counter that increases by 1 MiB every 100 ms is measured as 10 MiB/s, at
// whatever moment the measurement begins.
func TestMeasureBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		read := func() (int64, error) {
			return int64(time.Since(begin)/(100*time.Millisecond)) << 20, nil
		}
		m, err := measure(t.Context(), read, 0, 450*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if over := m.Over(10 << 20); over < 0.95 || over > 1.05 {
			t.Errorf("measured %s, want about 10 MiB/s", m)
		}
	})
}

// TestMeasureNothing verifies that a measurement without I/O is an error. A rate of 0 would obey any limit.
func TestMeasureNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	read := func() (int64, error) { return 0, nil }
	if m, err := measure(ctx, read, 0, time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("measure = %v, %v, want a deadline error", m, err)
	}
}
