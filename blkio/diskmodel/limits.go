package diskmodel

import (
	"math"
	"slices"
)

// Limits are the most operations and the most bytes that a disk does in a second, reads and writes together. Most volumes of clouds
// have such limits. A request takes its part of the one limit or of the other, whichever takes longer.
type Limits struct {
	Ops   float64 `json:"ops"`
	Bytes float64 `json:"bytes"`
}

// The bounds for measurements of a disk with two limits.
const (
	// alike is how much the rates of a disk may differ from its limits.
	alike = 0.08
	// spare is how much more bytes than its limit a disk may do in a short time: a token bucket has saved them.
	spare = 0.15
	// apart is how many times an operation has to be larger or smaller than the one that takes both limits, so that a
	// measurement shows one limit only.
	apart = 2
)

// FindLimits returns the limits that the points of random operations of both directions show. It returns nil if a point does not
// fit to them, or if one limit is not seen.
//
// Sequential operations may exceed the limit of operations, because the kernel, the hypervisor and clouds merge them. They may
// not exceed that of bytes, as those of a rotating disk do.
func FindLimits(random, sequential []Point) *Limits {
	var most Limits
	for _, p := range random {
		most = Limits{max(most.Ops, p.IOPS), max(most.Bytes, p.bps())}
	}
	var ops, bytes []float64
	for _, p := range random {
		switch size, knee := float64(p.Size), most.Bytes/most.Ops; {
		case size*apart <= knee:
			ops = append(ops, p.IOPS)
		case size >= knee*apart:
			bytes = append(bytes, p.bps())
		}
	}
	if len(ops) == 0 || len(bytes) == 0 {
		return nil
	}
	l := Limits{median(ops), median(bytes)}
	for _, p := range random {
		if math.Abs(p.IOPS/l.rate(p.Size)-1) > alike {
			return nil
		}
	}
	for _, p := range sequential {
		if p.IOPS < (1-alike)*l.rate(p.Size) || p.bps() > (1+spare)*l.Bytes {
			return nil
		}
	}
	return &l
}

// rate returns the operations of a size that the limits allow in a second.
func (l Limits) rate(size int) float64 { return min(l.Ops, l.Bytes/float64(size)) }

// median returns the lower one of two in the middle. A single measurement that was delayed does not count.
func median(of []float64) float64 {
	slices.Sort(of)
	return of[(len(of)-1)/2]
}
