// Package reminder decides when a lasting problem is logged, so that a log
// neither repeats each failed try nor hides a problem that began days ago.
package reminder

import "time"

// Interval is the time after which a problem that lasts is logged again.
const Interval = 10 * time.Minute

// Reminder follows one problem. Its zero value is ready to use. It is not safe
// for concurrent use.
type Reminder struct {
	text   string
	logged time.Time
}

// Due reports whether err is to be logged now: it is a new problem, or the last
// log line about it is older than Interval. A nil error ends the problem, and is
// never due.
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

// Lasts reports whether the problem was there when Due was last called.
func (r *Reminder) Lasts() bool { return r.text != "" }
