// Package follow moves io.cost's model of a disk with two limits, of operations and of bytes, as the mix of I/O moves.
// The linear model that is safe for each mix leaves much of such a disk idle (docs/explanation/weights.md).
//
// The package is pure: a look at what the cgroups do goes in, and a decision comes out. Package weights looks and writes.
// The simulation in package costsim holds the properties of the decisions.
package follow

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
)

// Use is the I/O of a cgroup in a second, from io.stat.
type Use struct {
	Weight     float64 // its part of the disk is Weight divided by those of all cgroups in use
	Ops, Bytes float64
	Cost       float64 // part of the disk by the model in force (cost.usage)
	Wait       float64 // part of the time in which it waited for io.cost (cost.wait); negative if the kernel does not print it
}

// Look has the means of an interval. The interval after a write begins when the write returns, because the kernel stops
// the disk's queue for it.
type Look struct {
	At    time.Duration  // since any moment that is the same for all looks
	Past  time.Duration  // how long the interval was
	Uses  map[string]Use // by cgroup
	Ops   float64        // of the disk in a second
	Bytes float64
	// Took is how long it took to read all of this.
	Took time.Duration
}

// The intervals of looks. With looks of one second, a cgroup that the move harms loses up to 2.5 seconds.
const (
	safeInterval  = time.Second
	movedInterval = 250 * time.Millisecond
)

// State is what the controller has done about the model.
type State string

// The states.
const (
	Safe    State = "safe"    // the calibrated model is in force
	Probing State = "probing" // a cheaper one is, for less than probeTime
	Moved   State = "moved"
)

// Decision is what the controller has decided, and what it remembers. The zero value is the state before the first look.
type Decision struct {
	State  State
	Since  time.Duration // of State, by Look.At
	Reason string
	Model  blkio.CostModel
	Write  bool // Model differs from that of the decision before

	looks     []Look         // since the last write; at most memory
	baseline  map[string]Use // of each cgroup by the safe model
	wait      time.Duration  // between a harm and the next probe
	notBefore time.Duration  // of the next probe
	target    float64        // part of each limit
	use, gain float64        // before the last step, and what the step should add to it
}

// IsMoved reports whether another model than the safe one is in force.
func (d *Decision) IsMoved() bool { return d.State == Probing || d.State == Moved }

// Interval returns the time until the next look.
func (d *Decision) Interval() time.Duration {
	if d.IsMoved() {
		return movedInterval
	}
	return safeInterval
}

const (
	stableLooks = 10   // of a stable mix
	memory      = 32   // looks
	room        = .91  // the disk must do less than this part of both limits
	mostTarget  = .95  // part of each limit to move to
	leastTarget = .75  // after steps that exceeded their target
	full        = .98  // above this part of a limit the disk's own queue decides
	leastGain   = .05  // of a write, in parts of the limits
	steady      = .25  // by which a cgroup may differ from its mean in a stable mix
	due         = .95  // part of the baseline that each cgroup keeps
	waits       = .1   // part of the time
	riskPrice   = .02  // worth of a model that charges other sizes half as much
	noPrice     = 1e-5 // least price of a byte, because a model without one is invalid

	// mostTime is how long a look may take in the mean, because there are four in a second.
	mostTime = 25 * time.Millisecond

	probeTime  = 3 * time.Second
	settleTime = 30 * time.Second // between two steps of a stable mix
	firstWait  = 10 * time.Second
	lastWait   = 10 * time.Minute
)

// Controller moves io.cost's model towards both limits of a disk.
//
// It only lowers prices: by each model that it writes, each size costs at most what it costs by the safe model. So a cgroup
// that uses its share gets at least what it gets by the safe model, until the disk's own queue fills. Before it writes, it
// predicts the mix for each case in which one of the waiting cgroups takes what the others do not.
type Controller struct {
	Limits diskmodel.Limits
	Safe   blkio.CostModel
	// Name returns the name of a cgroup in a reason.
	Name func(cgroup string) string
}

// Next returns the decision after a look. It is pure.
func (c *Controller) Next(d Decision, l Look) Decision {
	if d.State == "" {
		d.State, d.Since, d.Model, d.wait, d.target = Safe, l.At, c.Safe, firstWait, mostTarget
	}
	d.Write = false
	d.looks = append(slices.Clone(d.looks[max(0, len(d.looks)-memory+1):]), l)
	if d.State == Safe {
		return c.consider(d, l.At)
	}
	if why, queued := c.harm(&d); why != "" {
		return c.back(d, l.At, why, queued)
	}
	return c.continued(d, l.At)
}

const tooSlow = "the plugin takes too long to read what each cgroup does"

// Back returns the decision after a write that failed: the safe model, at least for lastWait.
func (c *Controller) Back(d Decision, now time.Duration, why string) Decision {
	d.wait = lastWait
	return c.back(d, now, why, false)
}

// consider decides whether to leave the safe model.
func (c *Controller) consider(d Decision, now time.Duration) Decision {
	looks := d.looks[max(0, len(d.looks)-stableLooks):]
	mean := average(looks)
	o, b := c.parts(mean.Ops, mean.Bytes)
	unstable := c.changes(looks, mean)
	switch {
	case now < d.notBefore: // the reason stays that of the harm
	case unstable != "":
		d.Reason = unstable
	case mean.Took > mostTime:
		d.Reason = tooSlow
	case max(o, b) >= room:
		d.Reason = fmt.Sprintf("the disk does at least %.0f %% of a limit", 100*room)
	case len(waiting(mean.Uses)) == 0:
		d.Reason = "no cgroup waits for io.cost"
	default:
		d.baseline = mean.Uses
		return c.step(d, now, mean)
	}
	return d
}

// continued decides about another step, after a step that harmed nobody.
func (c *Controller) continued(d Decision, now time.Duration) Decision {
	since := now - d.Since
	if since < probeTime || d.State == Moved && since < settleTime {
		return d
	}
	mean := average(d.looks)
	o, b := c.parts(mean.Ops, mean.Bytes)
	halfway := o+b >= d.use+d.gain/2 // otherwise something else than io.cost bounds the mix
	d.State, d.Since = Moved, now
	if !halfway || len(waiting(mean.Uses)) == 0 {
		return d
	}
	return c.step(d, now, mean)
}

// step writes the model that uses most of the disk, if that is worth a write.
func (c *Controller) step(d Decision, now time.Duration, mean Look) Decision {
	o, b := c.parts(mean.Ops, mean.Bytes)
	nowOps, nowBytes := c.predict(mean.Uses, prices{}, nil)
	// The kernel's own I/O belongs to no cgroup that io.cost holds back. With merges, cgroups do more operations than the disk.
	rest := max(0, o-nowOps, b-nowBytes)
	m, toOps, toBytes := c.best(mean.Uses, d.target-rest)
	if gain := toOps + toBytes - nowOps - nowBytes; gain >= leastGain {
		d.use, d.gain = o+b, gain
		return d.write(now, Probing, m, fmt.Sprintf("%s wait for io.cost: from %.0f and %.0f to %.0f and %.0f %% of operations and bytes",
			c.names(waiting(mean.Uses)), 100*o, 100*b, 100*toOps, 100*toBytes))
	}
	if d.State == Safe {
		d.Reason = "no model gives more of the disk without a risk"
	}
	return d
}

func (d Decision) write(now time.Duration, to State, m blkio.CostModel, reason string) Decision {
	d.Write, d.State, d.Since, d.Model, d.Reason, d.looks = true, to, now, m, reason, nil
	return d
}

// back returns to the safe model, and doubles the time until the next probe.
func (c *Controller) back(d Decision, now time.Duration, why string, queued bool) Decision {
	if d.State == Moved && now-d.Since > time.Minute {
		d.wait, d.target = firstWait, mostTarget
	}
	if queued {
		d.target = max(leastTarget, d.target-.05)
	}
	d = d.write(now, Safe, c.Safe, why)
	d.notBefore, d.wait = now+d.wait, min(2*d.wait, lastWait)
	return d
}

// harm returns why the model must not stay, or "". queued is true if the disk's own queue decides.
func (c *Controller) harm(d *Decision) (why string, queued bool) {
	last := d.looks[len(d.looks)-1]
	for _, name := range slices.Sorted(maps.Keys(last.Uses)) {
		if counts(last.Uses[name]) && !counts(d.baseline[name]) {
			return c.Name(name) + " began to use the disk", false
		}
	}
	if n := len(d.looks); n >= 4 && average(d.looks[n-4:]).Took > mostTime {
		return tooSlow, false
	}
	for n := 1; n <= min(8, len(d.looks)); n *= 2 {
		mean, seconds := average(d.looks[len(d.looks)-n:]), float64(n)*movedInterval.Seconds()
		o, b := c.parts(mean.Ops, mean.Bytes)
		if n < 8 && o+b < d.use/2 { // the disk stands still, or the node
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(d.baseline)) {
			was := d.baseline[name]
			part := c.charge(mean.Uses[name]) / c.charge(was)
			if noise := 2 / math.Sqrt(max(was.Ops*seconds, 1)); counts(was) && part < due-noise {
				return fmt.Sprintf("%s has %.0f %% of what it had by the safe model", c.Name(name), 100*part), max(o, b) > room
			}
		}
		if most := max(o, b); n == 8 && most > full || n == 4 && most > 1.01 || n == 2 && most > 1.05 {
			return fmt.Sprintf("the disk does %.0f %% of a limit: its own queue decides", 100*most), true
		}
	}
	return "", false
}

// names returns the name of the first cgroup, and the number of the others.
func (c *Controller) names(cgroups []string) string {
	if len(cgroups) == 1 {
		return c.Name(cgroups[0])
	}
	return fmt.Sprintf("%s and %d more", c.Name(cgroups[0]), len(cgroups)-1)
}

// charge returns what a use costs by the safe model.
func (c *Controller) charge(u Use) float64 {
	page := 4096 / float64(c.Safe.Rbps)
	return u.Ops*(1/float64(c.Safe.RRandIOPS)-page) + u.Bytes/4096*page
}

func (c *Controller) parts(ops, bytes float64) (o, b float64) {
	return ops / c.Limits.Ops, bytes / c.Limits.Bytes
}

// counts reports whether a cgroup is a part of the mix.
func counts(u Use) bool { return u.Ops >= 5 || u.Cost >= .01 }

// waiting returns the cgroups that io.cost holds back, sorted.
func waiting(uses map[string]Use) (out []string) {
	var sum float64
	for _, u := range uses {
		sum += u.Weight
	}
	for _, name := range slices.Sorted(maps.Keys(uses)) {
		if u := uses[name]; u.Wait > waits || u.Wait < 0 && u.Cost > .9*u.Weight/sum {
			out = append(out, name)
		}
	}
	return out
}

func average(looks []Look) Look {
	mean, all := Look{Uses: map[string]Use{}}, time.Duration(0)
	for _, l := range looks {
		all += l.Past
	}
	for _, l := range looks {
		n := float64(all) / float64(l.Past)
		mean.Ops, mean.Bytes, mean.Took = mean.Ops+l.Ops/n, mean.Bytes+l.Bytes/n, mean.Took+l.Took/time.Duration(len(looks))
		for name, u := range l.Uses {
			m := mean.Uses[name]
			mean.Uses[name] = Use{u.Weight, m.Ops + u.Ops/n, m.Bytes + u.Bytes/n, m.Cost + u.Cost/n, m.Wait + u.Wait/n}
		}
	}
	return mean
}

// changes returns why looks are no stable mix, or "".
func (c *Controller) changes(looks []Look, mean Look) string {
	if len(looks) < stableLooks {
		return fmt.Sprintf("the mix is known for less than %d seconds", stableLooks)
	}
	for _, name := range slices.Sorted(maps.Keys(mean.Uses)) {
		m := mean.Uses[name]
		noise := steady + 2/math.Sqrt(max(m.Ops, 1))
		for _, l := range looks {
			u := l.Uses[name]
			if counts(m) && (math.Abs(u.Ops-m.Ops) > noise*m.Ops || math.Abs(u.Bytes-m.Bytes) > noise*m.Bytes) {
				return c.Name(name) + " is not steady"
			}
		}
	}
	return ""
}
