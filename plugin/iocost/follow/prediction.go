package follow

import (
	"math"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// prices are those of an operation and of a byte, relative to their part of the disk's limits.
type prices struct{ op, byte float64 }

func (c *Controller) cost(p prices, u Use) float64 {
	return p.op/c.Limits.Ops + p.byte*u.Bytes/max(u.Ops, 1e-9)/c.Limits.Bytes
}

// model returns the model with prices, and with lower ones where the safe model has them: no size of any kind costs more.
func (c *Controller) model(p prices) blkio.CostModel {
	bps, s := c.Limits.Bytes/max(p.byte, noPrice), &c.Safe
	o, b := uint64(1/(p.op/c.Limits.Ops+4096/bps)), uint64(bps)
	return blkio.CostModel{
		Rbps: max(b, s.Rbps), RSeqIOPS: max(o, s.RSeqIOPS), RRandIOPS: max(o, s.RRandIOPS),
		Wbps: max(b, s.Wbps), WSeqIOPS: max(o, s.WSeqIOPS), WRandIOPS: max(o, s.WRandIOPS),
	}
}

// best returns the model with which a mix uses most of the disk, and the parts of both limits that it then uses. It tries
// ratios of the two prices. Each price is at most that of the safe model.
func (c *Controller) best(uses map[string]Use, target float64) (m blkio.CostModel, ops, bytes float64) {
	const steps = 20
	safe := prices{c.Limits.Ops * (1/float64(c.Safe.RRandIOPS) - 4096/float64(c.Safe.Rbps)), c.Limits.Bytes / float64(c.Safe.Rbps)}
	m, score := c.Safe, math.Inf(-1)
	for i := range 2*steps + 1 {
		ratio := prices{safe.op * min(1, float64(i)/steps), safe.byte * min(1, float64(2*steps-i)/steps)}
		cheap, dear := 64., 1.
		for range 20 {
			k := math.Sqrt(cheap * dear)
			if c.worst(uses, prices{ratio.op / k, ratio.byte / k}) > target {
				cheap = k
			} else {
				dear = k
			}
		}
		p := prices{ratio.op / dear, ratio.byte / dear}
		if c.worst(uses, p) > target {
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

// worst returns the largest part of a limit that a mix can come to use: if all that wait take their shares, or one of them
// takes what is left while the others do not more than now.
func (c *Controller) worst(uses map[string]Use, p prices) (part float64) {
	all := waiting(uses)
	for i := range all {
		o, b := c.predict(uses, p, all[i:i+1])
		part = max(part, o, b)
	}
	o, b := c.predict(uses, p, all)
	return max(part, o, b)
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
