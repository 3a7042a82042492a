package node

import "time"

// Each live change that counts is tried, logged and recorded, and the author of a pod decides how often there is one. So a
// number of changes of a pod count at once, and then one in each interval: the newest one.
const (
	changesAtOnce  = 10 // a person edits without a delay
	changeInterval = 10 * time.Second
)

// pace bounds how often live changes of a pod count.
type pace struct {
	paid      time.Time // the changes so far take changeInterval each, until then
	isDelayed bool      // a change waits, which reviseDelayed takes up
}

// wait returns the time until the next change may count.
func (p *pace) wait(now time.Time) time.Duration {
	return p.paid.Add(-(changesAtOnce - 1) * changeInterval).Sub(now)
}

// pay counts a change.
func (p *pace) pay(now time.Time) {
	if p.paid.Before(now) {
		p.paid = now
	}
	p.paid = p.paid.Add(changeInterval)
}

// reviseDelayed has a pod follow the newest of the live changes that came too soon after others.
func (t *podTable) reviseDelayed(of podIdentity) {
	s := t.state.Lock()
	defer t.state.Unlock()
	p := of.in(s)
	if p.pace.isDelayed = false; s.pods[p.id] == p {
		s.reviseCounted(p, time.Now())
	}
}

// reviseCounted is revise, and counts a change of the pod.
func (s *state) reviseCounted(p *pod, now time.Time) {
	had, by := p.edit, p.request.now.Load()
	if s.revise(p); p.edit != had || p.request.now.Load() != by {
		p.pace.pay(now)
	}
}
