package follow

import (
	"math"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// prices are those of an operation of 4 KiB, and of each further byte, relative to their part of the disk's limits.
type prices struct{ op, byte float64 }

func (c *Controller) cost(p prices, u Use) float64 {
	further := max(u.Bytes/max(u.Ops, 1e-9)-4096, 0)
	return p.op/c.Limits.Ops + p.byte*further/c.Limits.Bytes
}

// limits are those of the disk.
type limits struct{ ops, bytes bool }

// full returns the limits that a mix uses up.
func (c *Controller) full(uses map[string]Use) limits {
	o, b := c.predict(uses, prices{}, nil)
	return limits{o >= room, b >= room}
}

// safe returns the prices of the safe model.
func (c *Controller) safe() prices {
	return prices{c.Limits.Ops / float64(c.Safe.RRandIOPS), c.Limits.Bytes / float64(c.Safe.Rbps)}
}

// model returns the model with prices, and with lower ones where the safe model has them: no size of any kind costs more.
func (c *Controller) model(p prices) blkio.CostModel {
	o, b, s := uint64(c.Limits.Ops/p.op), uint64(c.Limits.Bytes/max(p.byte, noPrice)), &c.Safe
	return blkio.CostModel{
		Rbps: max(b, s.Rbps), RSeqIOPS: max(o, s.RSeqIOPS), RRandIOPS: max(o, s.RRandIOPS),
		Wbps: max(b, s.Wbps), WSeqIOPS: max(o, s.WSeqIOPS), WRandIOPS: max(o, s.WRandIOPS),
	}
}

// best returns the model with which a mix uses most of the disk, and the parts of both limits that it then uses. It tries
// ratios of the two prices. Each price is at most that of the safe model. That of a full limit is the same, so what waits
// for this limit gets what it gets by the safe model.
func (c *Controller) best(uses map[string]Use, full limits, target float64) (m blkio.CostModel, ops, bytes float64) {
	const steps = 20
	safe := c.safe()
	m, score := c.Safe, math.Inf(-1)
	for i := range 2*steps + 1 {
		cheap, dear := 64., 1.
		at := func(k float64) prices {
			p := prices{safe.op * min(1, float64(i)/steps) / k, safe.byte * min(1, float64(2*steps-i)/steps) / k}
			if full.ops {
				p.op = safe.op
			}
			if full.bytes {
				p.byte = safe.byte
			}
			p.op = max(p.op, p.byte*4096*c.Limits.Ops/c.Limits.Bytes) // the kernel's least price of an operation is that of its bytes
			return p
		}
		for range 20 {
			if k := math.Sqrt(cheap * dear); c.exceeds(uses, at(k), full, target) {
				cheap = k
			} else {
				dear = k
			}
		}
		p := at(dear)
		if c.exceeds(uses, p, full, target) {
			continue
		}
		o, b := c.predict(uses, p, waiting(uses))
		if s := o + b - riskPrice*math.Log(c.risk(p)); s > score {
			m, score, ops, bytes = c.model(p), s, o, b
		}
	}
	return m, ops, bytes
}

// risk returns how many times more than it can do the disk would get, if suddenly all requests had the size that the prices
// charge least.
func (c *Controller) risk(p prices) float64 {
	part := func(size float64) float64 {
		return max(1/c.Limits.Ops, size/c.Limits.Bytes) / c.cost(p, Use{Ops: 1, Bytes: size})
	}
	return max(part(4096), part(1<<20))
}

// exceeds reports whether a mix can come to use more than a part of a limit: if all that wait take their shares, or one of
// them takes what is left while the others do not more than now. The price of a
// full limit bounds it.
func (c *Controller) exceeds(uses map[string]Use, p prices, full limits, target float64) bool {
	all := waiting(uses)
	tooMuch := func(growing []string) bool {
		o, b := c.predict(uses, p, growing)
		return o > target && !full.ops || b > target && !full.bytes
	}
	for i := range all {
		if tooMuch(all[i : i+1]) {
			return true
		}
	}
	return tooMuch(all)
}

// predict returns the parts of both limits that a mix uses at prices. Some cgroups divide what the others leave, in the
// proportion in which they do now. The others do what they do now.
func (c *Controller) predict(uses map[string]Use, p prices, growing []string) (o, b float64) {
	left, sum := 1., 0.
	for _, u := range uses {
		left -= u.Ops * c.cost(p, u)
		o, b = o+u.Ops/c.Limits.Ops, b+u.Bytes/c.Limits.Bytes
	}
	for _, name := range growing {
		u := uses[name]
		sum, left = sum+u.Cost, left+u.Ops*c.cost(p, u)
	}
	for _, name := range growing {
		u := uses[name]
		more := max(left, 0)*u.Cost/max(sum, 1e-9)/c.cost(p, u) - u.Ops
		o, b = o+more/c.Limits.Ops, b+more*u.Bytes/max(u.Ops, 1e-9)/c.Limits.Bytes
	}
	return o, b
}
