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

// due returns when the next change may count.
func (p *pace) due() time.Time { return p.paid.Add(-(changesAtOnce - 1) * changeInterval) }

// pay counts a change.
func (p *pace) pay(now time.Time) {
	if p.paid.Before(now) {
		p.paid = now
	}
	p.paid = p.paid.Add(changeInterval)
}

// revisePaced has a pod follow what the API server knows about it, if its pace allows for that, and later otherwise.
func (s *state) revisePaced(p *pod, now time.Time) {
	if p.pace.isDelayed = p.pace.due().After(now); p.pace.isDelayed {
		s.reconcileAt(p.group.in(s), p.pace.due())
		return
	}
	had, by := p.edit, p.request.now.Load()
	if s.revise(p); p.edit != had || p.request.now.Load() != by {
		p.pace.pay(now)
	}
}

// reviseDelayed has the pods of a group follow the newest of the live changes that came too soon after others.
func (s *state) reviseDelayed(g *group, now time.Time) {
	for _, p := range g.pods {
		if p.pace.isDelayed {
			s.revisePaced(p, now)
		}
	}
}
