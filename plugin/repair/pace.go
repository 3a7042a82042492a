package repair

import "time"

// pace is the interval at which the Repairer reads the writes.
type pace struct {
	idle     time.Duration // the last interval, while there was no task; 0 after a task
	nextRead time.Time     // time of the next read
	hasAlarm bool          // the kernel reports between reads that a cgroup writes to another's file
}

// next returns the time until the next read, by the files and tasks that the last one found.
func (p *pace) next(found, tasks int) time.Duration {
	work := fileTick * time.Duration(found+tasks)
	switch {
	case tasks > 0:
		p.idle = 0
		return max(tick, work)
	case found > 0 || !p.hasAlarm:
		p.idle = max(writesTick, work)
	default:
		p.idle = min(max(2*p.idle, writesTick), slowTick)
	}
	return p.idle
}

// set starts the timer of the next read.
func (p *pace) set(timer *time.Timer, wait time.Duration) {
	p.nextRead = time.Now().Add(wait)
	timer.Reset(wait)
}

// sooner makes the next read come after wait at the latest, since there may be a task.
func (p *pace) sooner(timer *time.Timer, wait time.Duration) {
	p.idle = 0
	if time.Now().Add(wait).Before(p.nextRead) {
		p.set(timer, wait)
	}
}
