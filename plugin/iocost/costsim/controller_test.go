package costsim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// limits are the operations and the bytes that the disk can do in a second, together for reads and writes. A calibration
// has them: its rates with the smallest and the largest blocks.
type limits struct{ Ops, Bytes float64 }

// use is the I/O of a cgroup in a second, from io.stat.
type use struct {
	Weight     float64 // its part of the disk is Weight divided by those of all cgroups in use
	Ops, Bytes float64
	Cost       float64 // part of the disk by the model in force (cost.usage)
	Wait       float64 // part of the time in which it waited for io.cost (cost.wait); negative if the kernel does not print it
}

// look has the means of an interval. The interval after a write begins when the write returns, because the kernel stops
// the disk's queue for it.
type look struct {
	At    time.Duration
	Uses  map[string]use // by cgroup
	Ops   float64        // of the disk in a second
	Bytes float64
}

// The intervals of looks. With looks of one second, a cgroup that the move harms loses up to 2.5 seconds.
const (
	safeInterval  = time.Second
	movedInterval = 250 * time.Millisecond
)

type state string

const (
	isSafe  state = "safe"    // the calibrated model is in force
	probing state = "probing" // a cheaper one is, for less than probeTime
	moved   state = "moved"
)

// decision is what the controller has decided, and what it remembers. The zero value is the state before the first look.
type decision struct {
	State  state
	Since  time.Duration
	Reason string
	Model  blkio.CostModel
	Write  bool // Model differs from that of the decision before

	looks     []look         // since the last write; at most memory
	baseline  map[string]use // of each cgroup by the safe model
	wait      time.Duration  // between a harm and the next probe
	notBefore time.Duration  // of the next probe
	target    float64        // part of each limit
	use, gain float64        // before the last step, and what the step should add to it
}

const (
	stableLooks = 10   // of a stable mix
	memory      = 32   // looks
	room        = .85  // the disk must do less than this part of both limits
	mostTarget  = .95  // part of each limit to move to
	leastTarget = .75  // after steps that exceeded their target
	full        = .98  // above this part of a limit the disk's own queue decides
	leastGain   = .05  // of a write, in parts of the limits
	steady      = .25  // by which a cgroup may differ from its mean in a stable mix
	due         = .95  // part of the baseline that each cgroup keeps
	waits       = .1   // part of the time
	riskPrice   = .02  // worth of a model that charges other sizes half as much
	noPrice     = 1e-5 // least price of a byte, because a model without one is invalid

	probeTime  = 3 * time.Second
	settleTime = 30 * time.Second // between two steps of a stable mix
	firstWait  = 10 * time.Second
	lastWait   = 10 * time.Minute
)

// controller moves io.cost's model towards both limits of a disk.
//
// It only lowers prices: by each model that it writes, each size costs at most what it costs by the safe model. So a cgroup
// that uses its share gets at least what it gets by the safe model, until the disk's own queue fills. Before it writes, it
// predicts the mix for each case in which one of the waiting cgroups takes what the others do not.
type controller struct {
	Limits limits
	Safe   blkio.CostModel
}

// next returns the decision after a look. It is pure.
func (c *controller) next(d decision, l look) decision {
	if d.State == "" {
		d.State, d.Since, d.Model, d.wait, d.target = isSafe, l.At, c.Safe, firstWait, mostTarget
	}
	d.Write = false
	d.looks = append(slices.Clone(d.looks[max(0, len(d.looks)-memory+1):]), l)
	if d.State == isSafe {
		return c.consider(d, l.At)
	}
	if why, queued := c.harm(&d); why != "" {
		return c.back(d, l.At, why, queued)
	}
	return c.continued(d, l.At)
}

// consider decides whether to leave the safe model.
func (c *controller) consider(d decision, now time.Duration) decision {
	looks := d.looks[max(0, len(d.looks)-stableLooks):]
	mean := average(looks)
	o, b := c.parts(mean.Ops, mean.Bytes)
	unstable := changes(looks, mean)
	switch {
	case now < d.notBefore: // the reason stays that of the harm
	case unstable != "":
		d.Reason = unstable
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
func (c *controller) continued(d decision, now time.Duration) decision {
	since := now - d.Since
	if since < probeTime || d.State == moved && since < settleTime {
		return d
	}
	mean := average(d.looks)
	o, b := c.parts(mean.Ops, mean.Bytes)
	halfway := o+b >= d.use+d.gain/2 // otherwise something else than io.cost bounds the mix
	d.State, d.Since = moved, now
	if !halfway || len(waiting(mean.Uses)) == 0 {
		return d
	}
	return c.step(d, now, mean)
}

// step writes the model that uses most of the disk, if that is worth a write.
func (c *controller) step(d decision, now time.Duration, mean look) decision {
	o, b := c.parts(mean.Ops, mean.Bytes)
	m, toOps, toBytes := c.best(mean.Uses, d.target)
	if gain := toOps + toBytes - o - b; gain >= leastGain {
		d.use, d.gain = o+b, gain
		return d.write(now, probing, m, fmt.Sprintf("%s wait for io.cost: from %.0f and %.0f to %.0f and %.0f %% of operations and bytes",
			strings.Join(waiting(mean.Uses), ", "), 100*o, 100*b, 100*toOps, 100*toBytes))
	}
	if d.State == isSafe {
		d.Reason = "no model gives more of the disk without a risk"
	}
	return d
}

func (d decision) write(now time.Duration, to state, m blkio.CostModel, reason string) decision {
	d.Write, d.State, d.Since, d.Model, d.Reason, d.looks = true, to, now, m, reason, nil
	return d
}

// back returns to the safe model, and doubles the time until the next probe.
func (c *controller) back(d decision, now time.Duration, why string, queued bool) decision {
	if d.State == moved && now-d.Since > time.Minute {
		d.wait, d.target = firstWait, mostTarget
	}
	if queued {
		d.target = max(leastTarget, d.target-.05)
	}
	d = d.write(now, isSafe, c.Safe, why)
	d.notBefore, d.wait = now+d.wait, min(2*d.wait, lastWait)
	return d
}

// harm returns why the model must not stay, or "". queued is true if the disk's own queue decides.
func (c *controller) harm(d *decision) (why string, queued bool) {
	last := d.looks[len(d.looks)-1]
	for _, name := range slices.Sorted(maps.Keys(last.Uses)) {
		if counts(last.Uses[name]) && !counts(d.baseline[name]) {
			return name + " began to use the disk", false
		}
	}
	for n := 1; n <= min(8, len(d.looks)); n *= 2 {
		mean, seconds := average(d.looks[len(d.looks)-n:]), float64(n)*movedInterval.Seconds()
		o, b := c.parts(mean.Ops, mean.Bytes)
		for _, name := range slices.Sorted(maps.Keys(d.baseline)) {
			was := d.baseline[name]
			part := c.charge(mean.Uses[name]) / c.charge(was)
			if noise := 2 / math.Sqrt(max(was.Ops*seconds, 1)); counts(was) && part < due-noise {
				return fmt.Sprintf("%s has %.0f %% of what it had by the safe model", name, 100*part), max(o, b) > room
			}
		}
		if most := max(o, b); n >= 4 && most > full || n == 2 && most > 1.05 {
			return fmt.Sprintf("the disk does %.0f %% of a limit: its own queue decides", 100*most), true
		}
	}
	return "", false
}

// charge returns what a use costs by the safe model.
func (c *controller) charge(u use) float64 {
	page := 4096 / float64(c.Safe.Rbps)
	return u.Ops*(1/float64(c.Safe.RRandIOPS)-page) + u.Bytes/4096*page
}

func (c *controller) parts(ops, bytes float64) (o, b float64) {
	return ops / c.Limits.Ops, bytes / c.Limits.Bytes
}

// counts reports whether a cgroup is a part of the mix.
func counts(u use) bool { return u.Ops >= 5 || u.Cost >= .01 }

// waiting returns the cgroups that io.cost holds back, sorted.
func waiting(uses map[string]use) (out []string) {
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

func average(looks []look) look {
	mean, n := look{Uses: map[string]use{}}, float64(len(looks))
	for _, l := range looks {
		mean.Ops, mean.Bytes = mean.Ops+l.Ops/n, mean.Bytes+l.Bytes/n
		for name, u := range l.Uses {
			m := mean.Uses[name]
			mean.Uses[name] = use{u.Weight, m.Ops + u.Ops/n, m.Bytes + u.Bytes/n, m.Cost + u.Cost/n, m.Wait + u.Wait/n}
		}
	}
	return mean
}

// changes returns why looks are no stable mix, or "".
func changes(looks []look, mean look) string {
	if len(looks) < stableLooks {
		return fmt.Sprintf("the mix is known for less than %d seconds", stableLooks)
	}
	for _, name := range slices.Sorted(maps.Keys(mean.Uses)) {
		m := mean.Uses[name]
		noise := steady + 2/math.Sqrt(max(m.Ops, 1))
		for _, l := range looks {
			u := l.Uses[name]
			if counts(m) && (math.Abs(u.Ops-m.Ops) > noise*m.Ops || math.Abs(u.Bytes-m.Bytes) > noise*m.Bytes) {
				return name + " is not steady"
			}
		}
	}
	return ""
}
