package repair

import "time"

// pace is how soon the Repairer looks at what was written.
type pace struct {
	quiet time.Duration // between the last looks, at which nothing was to be done
	look  time.Time     // the next one
	hears bool          // the kernel tells between looks when another's file is written to
}

// next returns the time until the next look, by what the last one found.
func (p *pace) next(found, tasks int) time.Duration {
	work := fileTick * time.Duration(found+tasks)
	switch {
	case tasks > 0:
		p.quiet = 0
		return max(tick, work)
	case found > 0 || !p.hears:
		p.quiet = max(quietTick, work)
	default:
		p.quiet = min(max(2*p.quiet, quietTick), slowTick)
	}
	return p.quiet
}

// set starts the timer of the next look.
func (p *pace) set(timer *time.Timer, wait time.Duration) {
	p.look = time.Now().Add(wait)
	timer.Reset(wait)
}

// sooner has the next look be no later than that: there may be something to do.
func (p *pace) sooner(timer *time.Timer, wait time.Duration) {
	p.quiet = 0
	if time.Now().Add(wait).Before(p.look) {
		p.set(timer, wait)
	}
}
