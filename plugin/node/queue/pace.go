package queue

import "time"

// Each change that counts costs the node work, and the author of a pod decides how often there is one. So a number of changes count at
// once, and then one in each interval: the newest one.
const (
	changesAtOnce  = 10 // a person edits without a delay
	changeInterval = 10 * time.Second
)

// Pace bounds how often changes of a pod count.
type Pace struct {
	paid time.Time // the changes so far take changeInterval each, until then
	// IsDelayed is true if a change waits; set and cleared by the caller.
	IsDelayed bool
}

// Due returns when the next change may count.
func (p *Pace) Due() time.Time { return p.paid.Add(-(changesAtOnce - 1) * changeInterval) }

// Pay counts a change.
func (p *Pace) Pay(now time.Time) {
	if p.paid.Before(now) {
		p.paid = now
	}
	p.paid = p.paid.Add(changeInterval)
}
