// Package reminder decides when a lasting problem is logged: not after each failed try, and
// again while it lasts.
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

// Pause is the time between two calls of a function by Keep.
const Pause = 30 * time.Second

// Keep calls fn, and calls it again after it has returned, until ctx ends. It passes those errors to
// log that are due.
func Keep(ctx context.Context, fn func() error, log func(error)) {
	var problem Reminder
	for {
		if err := fn(); ctx.Err() == nil && problem.Due(time.Now(), err) {
			log(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(Pause):
		}
	}
}
