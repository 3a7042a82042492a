package cgroup

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestMeasureBursts: a counter that moves 1 MiB every 100 ms is 10 MiB/s from
// whatever moment it is looked at.
func TestMeasureBursts(t *testing.T) {
	begin := time.Now()
	read := func() (int64, error) {
		return int64(time.Since(begin)/(100*time.Millisecond)) << 20, nil
	}
	m, err := measure(t.Context(), read, 0, 450*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if over := m.Over(10 << 20); over < 0.8 || over > 1.2 {
		t.Errorf("measured %s, want about 10 MiB/s", m)
	}
}

// TestMeasureNothing: no I/O is an error, not a rate of 0 that any limit holds.
func TestMeasureNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	read := func() (int64, error) { return 0, nil }
	if m, err := measure(ctx, read, 0, time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("measure = %v, %v, want a deadline error", m, err)
	}
}
