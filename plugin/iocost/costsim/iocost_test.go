package costsim

import (
	"math"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// The kernel's constants (block/blk-iocost.c of Linux 6.12), as parts of a period or of the whole.
const (
	marginMin, marginLow, marginTarget = .1, .2, .5
	timerSlack                         = .01
	inuseStep                          = .25
	unbusy                             = .75
	clampStep                          = .04
	lagging                            = 10
	leastInuse                         = 1e-6
)

// coefs are io.cost's coefficients of one direction, in seconds of the disk.
type coefs struct{ sequential, random, page float64 }

// newCoefs follows calc_lcoefs.
func newCoefs(bps, sequential, random uint64) coefs {
	page := 1 / math.Ceil(float64(bps)/4096)
	return coefs{max(0, 1/float64(sequential)-page), max(0, 1/float64(random)-page), page}
}

// ioc is io.cost of one disk. Times are in seconds; vtime is in seconds of the disk.
type ioc struct {
	sim                   *sim
	enabled               bool
	model                 [2]coefs // of reads, of writes
	qos                   blkio.CostQOS
	period                float64
	base, rate            float64 // vrate, and the one that also makes up for vtime that was thrown away; 1 is 100 %
	periodAt, periodVtime float64
	lost                  float64 // vtime_err
	n                     int     // periods
	busy                  int
	running               bool
	requests, missed      [2]float64 // since the period began
}

func (c *ioc) set(m blkio.CostModel) {
	c.model = [2]coefs{newCoefs(m.Rbps, m.RSeqIOPS, m.RRandIOPS), newCoefs(m.Wbps, m.WSeqIOPS, m.WRandIOPS)}
}

func (c *ioc) setQOS(q blkio.CostQOS) {
	c.enabled, c.qos, c.period = true, q, q.Period().Seconds()
}

func (c *ioc) vnow() float64            { return c.periodVtime + (c.sim.now-c.periodAt)*c.rate }
func (c *ioc) margin(p float64) float64 { return p * c.period * c.base }

func (c *ioc) cost(r *request) float64 {
	k := c.model[direction(r.write)]
	base := k.random
	if r.w.Sequential {
		base = k.sequential
	}
	return base + k.page*float64(max(1, r.size/4096))
}

// group is a cgroup: a leaf. The plugin makes the tree above leaves transparent, so there is none here.
type group struct {
	Name               string
	Weight             float64
	active, inuse      float64 // weights; 0 while the cgroup is idle
	lastInuse, saved   float64
	vtime, done        float64
	debt, usage        float64 // usage is of this period
	activePeriod       int
	activated          float64
	waiting            []*request
	timer              float64 // when the first waiter is due; 0 for none
	waitSince, inDebt  float64 // 0 for neither
	total              counters
	donating, donation float64 // of the pass of a period
}

// hweights returns the part of the disk that a group is due, and the one that it has after donations.
func (c *ioc) hweights(g *group) (active, inuse float64) {
	var a, i float64
	for _, o := range c.sim.groups {
		a, i = a+o.active, i+o.inuse
	}
	return g.active / a, g.inuse / i
}

// setInuse follows propagate_weights.
func (c *ioc) setInuse(g *group, inuse float64, save bool) {
	g.lastInuse = g.inuse
	g.inuse = min(max(inuse, leastInuse), g.active)
	if save {
		g.saved = c.vnow() - g.vtime
	}
}

// activate follows iocg_activate.
func (c *ioc) activate(g *group) {
	g.activePeriod = c.n
	if g.active > 0 {
		return
	}
	vtime := c.vnow() - c.margin(marginTarget)
	g.done, g.vtime = g.done+vtime-g.vtime, vtime
	g.active, g.activated = g.Weight, c.sim.now
	inuse := g.lastInuse
	if inuse == 0 {
		inuse = g.Weight
	}
	c.setInuse(g, inuse, true)
	if !c.running {
		c.running = true
		c.startPeriod()
	}
}

func (c *ioc) startPeriod() {
	c.periodVtime, c.periodAt = c.vnow(), c.sim.now
	c.sim.after(c.period, c.endPeriod)
}

// throttle follows ioc_rqos_throttle: it sends the request to the disk, or lets it wait.
func (c *ioc) throttle(r *request) {
	g := r.w.group
	if !c.enabled {
		c.sim.disk.enter(r)
		return
	}
	r.abs = c.cost(r)
	c.activate(g)
	r.cost = c.adjust(g, r.abs)
	switch {
	case len(g.waiting) == 0 && g.debt == 0 && g.vtime+r.cost <= c.vnow():
		c.commit(r)
	case r.debt:
		if g.debt == 0 {
			g.inDebt = c.sim.now
			c.setInuse(g, 0, false)
		}
		g.debt, g.usage, g.total.Cost, r.cost = g.debt+r.abs, g.usage+r.abs, g.total.Cost+r.abs, 0
		c.sim.disk.enter(r)
	default:
		if g.debt == 0 && g.inuse != g.active {
			c.setInuse(g, g.active, true)
		}
		g.waiting = append(g.waiting, r)
		r.w.blocked++
		c.kick(g)
	}
}

// adjust follows adjust_inuse_and_calc_cost: a group whose margin shrinks takes back what it has donated.
func (c *ioc) adjust(g *group, abs float64) float64 {
	_, inuse := c.hweights(g)
	cost := abs / inuse
	margin := c.vnow() - g.vtime - cost
	if g.debt > 0 || margin >= g.saved || margin >= c.margin(marginLow) || g.inuse == g.active {
		return cost
	}
	for next := g.inuse; ; {
		next += inuseStep * g.active
		c.setInuse(g, next, true)
		_, inuse = c.hweights(g)
		cost = abs / inuse
		if g.vtime+cost <= c.vnow() || g.inuse == g.active {
			return cost
		}
	}
}

func (c *ioc) commit(r *request) {
	g := r.w.group
	g.vtime, g.usage, g.total.Cost = g.vtime+r.cost, g.usage+r.abs, g.total.Cost+r.abs
	c.sim.disk.enter(r)
}

// kick follows iocg_kick_waitq: it pays debt, and wakes those that are due.
func (c *ioc) kick(g *group) {
	active, _ := c.hweights(g)
	budget := c.vnow() - g.vtime
	if g.debt > 0 && budget > 0 {
		pay := min(budget*active, g.debt)
		g.vtime, g.done, g.debt, budget = g.vtime+pay/active, g.done+pay/active, g.debt-pay, budget-pay/active
		if g.debt <= 1e-12 {
			g.debt = 0
			g.total.InDebt, g.inDebt = g.total.InDebt+c.sim.now-g.inDebt, 0
			c.setInuse(g, g.lastInuse, false)
		}
	}
	if g.debt > 0 {
		budget = min(0, budget-g.debt/active)
	}
	_, inuse := c.hweights(g)
	for len(g.waiting) > 0 {
		r := g.waiting[0]
		r.cost = r.abs / inuse
		if budget -= r.cost; budget < 0 {
			break
		}
		g.waiting = g.waiting[1:]
		c.commit(r)
		r.w.blocked--
		c.sim.after(0, r.w.issue)
	}
	if len(g.waiting) == 0 {
		if g.waitSince > 0 {
			g.total.Wait, g.waitSince = g.total.Wait+c.sim.now-g.waitSince, 0
		}
		c.sim.thaw()
		return
	}
	if g.waitSince == 0 {
		g.waitSince = c.sim.now
	}
	slack := timerSlack * c.period
	due := c.sim.now - budget/c.base + slack
	if g.timer > c.sim.now && math.Abs(g.timer-due) <= slack {
		return
	}
	g.timer = due
	c.sim.at(due, func() {
		if g.timer == due {
			g.timer = 0
			c.kick(g)
		}
	})
}

// endPeriod follows ioc_timer_fn. Debts are not forgiven, and debtors are not delayed.
func (c *ioc) endPeriod() {
	c.expire()
	donors, shortages, lags := c.divide()
	if len(donors) > 0 && shortages > 0 {
		c.transfer(donors)
	}
	c.adjustRate(shortages, lags)
	c.n++
	c.running = false
	for _, g := range c.sim.groups {
		c.running = c.running || g.active > 0
	}
	if !c.running {
		c.busy, c.lost = 0, 0
		c.rate = c.base
		return
	}
	c.startPeriod()
	whole := c.period * c.base
	correction := min(max(-c.lost/c.period, -c.base/2), c.base)
	c.lost = min(max(c.lost+correction*c.period, -whole), whole)
	c.rate = c.base + correction
}

// expire follows ioc_check_iocgs.
func (c *ioc) expire() {
	for _, g := range c.sim.groups {
		if g.waitSince > 0 {
			g.total.Wait, g.waitSince = g.total.Wait+c.sim.now-g.waitSince, c.sim.now
		}
		if g.inDebt > 0 {
			g.total.InDebt, g.inDebt = g.total.InDebt+c.sim.now-g.inDebt, c.sim.now
		}
		switch {
		case g.active == 0:
		case len(g.waiting) > 0 || g.debt > 0:
			c.kick(g)
		case g.activePeriod != c.n && g.inflight() == 0:
			if excess := c.vnow() - g.vtime - c.margin(marginTarget); excess > 0 {
				_, inuse := c.hweights(g)
				c.lost -= excess * inuse
			}
			g.lastInuse, g.active, g.inuse = g.inuse, 0, 0
		}
	}
}

// inflight returns the vtime of the requests of a group that the disk has.
func (g *group) inflight() float64 {
	if d := g.vtime - g.done; d > 1e-9 {
		return d
	}
	return 0
}

// divide decides which groups donate a part of their share, and what stays with them.
func (c *ioc) divide() (donors []*group, shortages, lags int) {
	took := c.vnow() - c.periodVtime
	for _, g := range c.sim.groups {
		if g.active == 0 {
			continue
		}
		now, usage := c.vnow(), g.usage/c.base
		g.usage = 0
		active, inuse := c.hweights(g)
		if (c.qos.RPct > 0 || c.qos.WPct > 0) && g.inflight() > 0 && g.vtime > now-lagging*took && g.done < now-took {
			lags++
		}
		if inuse >= active-1e-9 && (len(g.waiting) > 0 || g.vtime >= now-c.margin(marginLow)) {
			shortages++
			continue
		}
		usage = max(usage, g.inflight()*inuse/c.base) / max(c.sim.now-max(g.activated, c.periodAt), 1e-6)
		most := c.most(g)
		g.donation = c.afterDonation(g, inuse, most, min(max(usage, 1e-6), 1), took)
		if g.donation < most {
			g.donating = active
			donors = append(donors, g)
			continue
		}
		c.setInuse(g, g.active, true)
		shortages++
	}
	return donors, shortages, lags
}

// most follows current_hweight_max.
func (c *ioc) most(g *group) float64 {
	sum := g.active
	for _, o := range c.sim.groups {
		if o != g {
			sum += o.inuse
		}
	}
	return g.active / sum
}

// afterDonation follows hweight_after_donation. It also throws away what exceeds the margin.
func (c *ioc) afterDonation(g *group, inuse, most, usage, took float64) float64 {
	now := c.vnow()
	switch {
	case g.debt > 0:
		return leastInuse
	case len(g.waiting) > 0 || g.vtime > now-c.margin(marginMin):
		return most
	}
	if excess := now - g.vtime - c.margin(marginTarget); excess > 0 {
		g.vtime, g.done, c.lost = g.vtime+excess, g.done+excess, c.lost-excess*inuse
	}
	return min(max(usage/(1-marginTarget+(now-g.vtime)/took), leastInuse), most)
}

// transfer follows transfer_surpluses for a tree of one level.
func (c *ioc) transfer(donors []*group) {
	var sum, donating, after float64
	for _, g := range c.sim.groups {
		sum += g.active
	}
	for _, g := range donors {
		donating, after = donating+g.donating, after+g.donation
	}
	donating = min(donating, 1-1e-6)
	after = min(after, donating)
	adjusted := sum * (1 - donating) / (1 - after)
	for _, g := range donors {
		if g.debt == 0 {
			c.setInuse(g, adjusted*g.donation, true)
		}
	}
}
