package diskmodel

import "math"

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
	// apart is how many times an operation has to be larger or smaller than the one that takes both limits, so that a
	// measurement shows one limit only.
	apart = 2
)

// FindLimits returns the limits that the points of all directions and patterns show. It returns nil if a point does not fit
// to them, or if one limit is not seen.
func FindLimits(points []Point) *Limits {
	l := Limits{Ops: math.Inf(1), Bytes: math.Inf(1)}
	var most Limits
	for _, p := range points {
		most = Limits{max(most.Ops, p.IOPS), max(most.Bytes, p.bps())}
	}
	small, large := false, false
	for _, p := range points {
		switch size, knee := float64(p.Size), most.Bytes/most.Ops; {
		case size*apart <= knee:
			l.Ops, small = min(l.Ops, p.IOPS), true
		case size >= knee*apart:
			l.Bytes, large = min(l.Bytes, p.bps()), true
		}
	}
	if !small || !large {
		return nil
	}
	for _, p := range points {
		if rate := min(l.Ops, l.Bytes/float64(p.Size)); math.Abs(p.IOPS/rate-1) > alike {
			return nil
		}
	}
	return &l
}
