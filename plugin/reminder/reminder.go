// Package reminder has what loops need that work until their context ends: pauses, wake-ups, and the decision when a
// lasting problem is logged. That is not after each failed try, and again while it lasts.
package reminder

import (
	"context"
	"time"
)

// Interval is the time after which a problem that lasts is logged again.
const Interval = 10 * time.Minute

// Reminder follows one problem. Its zero value has none. It is not safe for concurrent use.
type Reminder struct {
	text   string
	logged time.Time
}

// Due reports whether err has to be logged now: its text is new, or was logged last at least Interval ago. A
// nil error ends the problem, and is never due.
func (r *Reminder) Due(now time.Time, err error) bool {
	if err == nil {
		*r = Reminder{}
		return false
	}
	text := err.Error()
	if text == r.text && now.Sub(r.logged) < Interval {
		return false
	}
	r.text, r.logged = text, now
	return true
}

// Keep calls fn, and calls it again after it has returned and a pause, until ctx ends. It passes those errors to
// log that are due.
func Keep(ctx context.Context, pause time.Duration, fn func() error, log func(error)) {
	var problem Reminder
	for ctx.Err() == nil {
		if err := fn(); ctx.Err() == nil && problem.Due(time.Now(), err) {
			log(err)
		}
		Sleep(ctx, pause)
	}
}

// Every calls fn again and again until ctx ends, after a pause each.
func Every(ctx context.Context, pause time.Duration, fn func(now time.Time)) {
	for Sleep(ctx, pause); ctx.Err() == nil; Sleep(ctx, pause) {
		fn(time.Now())
	}
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Wake puts a token into a channel that has room for one, unless it has one already.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
