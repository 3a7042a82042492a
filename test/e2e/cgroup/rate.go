package cgroup

import (
	"context"
	"fmt"
	"time"
)

// Measurement is the I/O of a cgroup on a disk in some time.
type Measurement struct {
	Amount  int64 // bytes or operations
	Elapsed time.Duration
}

// Rate returns the rate in units per second.
func (m Measurement) Rate() float64 { return float64(m.Amount) / m.Elapsed.Seconds() }

// Over returns the rate as a multiple of a limit.
func (m Measurement) Over(limit int64) float64 { return m.Rate() / float64(limit) }

// String formats the measurement for a log.
func (m Measurement) String() string {
	return fmt.Sprintf("%.0f/s (%d in %.2fs)", m.Rate(), m.Amount, m.Elapsed.Seconds())
}

const poll = 20 * time.Millisecond

// Measure returns the rate of a counter of io.stat over at least the duration, without the
// first settle of activity. It measures from one change of the counter to another: a
// throttled cgroup dispatches in bursts of up to several MiB, and a window that ends
// between two of them would be off by one.
func (d Dir) Measure(ctx context.Context, device, counter string, settle, duration time.Duration) (Measurement, error) {
	read := func() (int64, error) { return d.Counter(device, counter) }
	return measure(ctx, read, settle, duration)
}

func measure(ctx context.Context, read func() (int64, error), settle, duration time.Duration) (Measurement, error) {
	next := func() (int64, time.Time, error) { return nextChange(ctx, read) }
	_, begin, err := next()
	if err != nil {
		return Measurement{}, fmt.Errorf("wait for the first I/O: %w", err)
	}
	var from, now int64
	var start, at time.Time
	for {
		now, at, err = next()
		if err != nil {
			return Measurement{}, fmt.Errorf("after %s of I/O: %w", time.Since(begin).Round(time.Millisecond), err)
		}
		if start.IsZero() && at.Sub(begin) >= settle {
			from, start = now, at
		}
		if !start.IsZero() && at.Sub(start) >= duration {
			return Measurement{Amount: now - from, Elapsed: at.Sub(start)}, nil
		}
	}
}

// nextChange waits until the counter is another, and says when it saw that.
func nextChange(ctx context.Context, read func() (int64, error)) (int64, time.Time, error) {
	before, err := read()
	if err != nil {
		return 0, time.Time{}, err
	}
	for {
		select {
		case <-ctx.Done():
			return 0, time.Time{}, fmt.Errorf("the counter stands at %d: %w", before, context.Cause(ctx))
		case <-time.After(poll):
		}
		now, err := read()
		if err != nil {
			return 0, time.Time{}, err
		}
		if now != before {
			return now, time.Now(), nil
		}
	}
}
