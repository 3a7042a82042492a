// Package diskmodel turns measurements of a disk into io.cost's linear model of it, and into its limits if it has two.
//
// The package does no I/O. All block sizes are bytes, all rates are per second.
package diskmodel

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Point is one measurement: the rate that a disk reaches with blocks of one size.
type Point struct {
	Size int     `json:"size"` // of a block
	IOPS float64 `json:"iops"` // operations per second
}

func (p Point) bps() float64 { return float64(p.Size) * p.IOPS }

// Measured has the points of one direction, reads or writes.
type Measured struct {
	Sequential []Point `json:"sequential"`
	Random     []Point `json:"random"`
}

// Fit is io.cost's model of a disk and how far it is from the measurements.
type Fit struct {
	Model blkio.CostModel
	// MaxError and MeanError are relative differences between the rate that the model gives and
	// the measured one, over all points: 0.1 is 10 %. The linear model has three values for each
	// direction, so a disk can differ from it.
	MaxError  float64
	MeanError float64
	// Headroom is the largest ratio of a measured rate to the model's, at least 1. At this many
	// times the model's rate io.cost does not slow down any of the measured points.
	Headroom float64
}

// page is io.cost's unit of size, in bytes (IOC_PAGE_SIZE in block/blk-iocost.c).
const page = 4096

// FitLinear returns the linear model that fits the points of reads and of writes best. It considers only models
// that charge no point less than it costs the disk. The fit has the least sum of relative errors.
//
// io.cost charges an operation of n pages with base + n*page, in seconds of the disk. base differs between
// sequential and random operations (calc_lcoefs in block/blk-iocost.c). Its values are bytes/s = 4096/page, and
// operations/s of one page = 1/(base+page).
//
// Many disks are no sums: a cloud's volume has a limit of operations and one of bytes, and the cost of an
// operation is the larger one of both. Where a model charges too little, io.cost gives out more than the disk
// can do. Then the disk's own queue decides whose operation is next, and weights have no effect. Where it
// charges too much, io.cost leaves a part of the disk idle. So the fit errs on that side, and Headroom is how
// far io.cost's rate (vrate) would have to rise to use all of the disk.
func FitLinear(reads, writes Measured) (Fit, error) {
	r, err := fitDirection(reads)
	if err != nil {
		return Fit{}, fmt.Errorf("fit reads: %w", err)
	}
	w, err := fitDirection(writes)
	if err != nil {
		return Fit{}, fmt.Errorf("fit writes: %w", err)
	}
	f := Fit{Model: blkio.CostModel{
		Rbps: r.bps(), RSeqIOPS: r.iops(r.sequential), RRandIOPS: r.iops(r.random),
		Wbps: w.bps(), WSeqIOPS: w.iops(w.sequential), WRandIOPS: w.iops(w.random),
	}}
	f.summarize(append(r.ratios(reads), w.ratios(writes)...))
	return f, f.Model.Check()
}

func (f *Fit) summarize(ratios []float64) {
	f.Headroom = 1
	for _, ratio := range ratios {
		e := math.Abs(1/ratio - 1)
		f.MaxError, f.MeanError = max(f.MaxError, e), f.MeanError+e/float64(len(ratios))
		f.Headroom = max(f.Headroom, ratio)
	}
}

// costs has the costs of one direction, in seconds.
type costs struct {
	sequential, random float64 // the base of an operation
	page               float64
}

func (c costs) bps() uint64              { return rounded(page / c.page) }
func (c costs) iops(base float64) uint64 { return rounded(1 / (base + c.page)) }

func rounded(rate float64) uint64 { return uint64(math.Round(min(rate, math.MaxInt64))) }

// pagesOf returns the pages that io.cost charges for a block: whole ones, and at least one
// (calc_vtime_cost_builtin in block/blk-iocost.c).
func pagesOf(size int) float64 { return float64(max(1, size/page)) }

// fitDirection returns the costs of one direction. For a given cost of a page, there is a smallest base that
// charges each point enough. So the sum of the errors is a function of the cost of a page. It is convex, and
// linear between the costs at which another point determines a base.
func fitDirection(m Measured) (costs, error) {
	switch {
	case len(m.Sequential) == 0 || len(m.Random) == 0:
		return costs{}, errors.New("no point was measured")
	case len(m.Sequential)+len(m.Random) < 3:
		return costs{}, errors.New("at least three points are needed")
	}
	leastPage := math.Inf(1)
	for _, points := range [][]Point{m.Sequential, m.Random} {
		for _, p := range points {
			if p.Size <= 0 || !(p.IOPS > 0) || math.IsInf(p.IOPS, 0) {
				return costs{}, fmt.Errorf("invalid point: %g operations/s of %d bytes", p.IOPS, p.Size)
			}
			leastPage = min(leastPage, unbounded/p.IOPS/pagesOf(p.Size))
		}
	}
	candidates := append(turns(m.Sequential), turns(m.Random)...)
	var best costs
	least := math.Inf(1)
	for _, perPage := range append(candidates, leastPage) {
		c := costs{base(m.Sequential, perPage), base(m.Random, perPage), perPage}
		sum := 0.0
		for _, ratio := range c.ratios(m) {
			sum += ratio
		}
		if sum < least {
			best, least = c, sum
		}
	}
	return best, nil
}

// unbounded is the cost of the pages of a disk whose throughput has no bound that the points show,
// relative to that of an operation. io.cost needs one that is not 0.
const unbounded = 0.01

// turns returns the costs of a page at which another point, or 0, determines the base.
func turns(points []Point) (out []float64) {
	for i, p := range points {
		out = append(out, 1/p.IOPS/pagesOf(p.Size))
		for _, q := range points[:i] {
			t := (1/p.IOPS - 1/q.IOPS) / (pagesOf(p.Size) - pagesOf(q.Size))
			if t > 0 && !math.IsInf(t, 0) {
				out = append(out, t)
			}
		}
	}
	return out
}

// base returns the least base with which no point costs more than is charged.
func base(points []Point, perPage float64) (out float64) {
	for _, p := range points {
		out = max(out, 1/p.IOPS-pagesOf(p.Size)*perPage)
	}
	return out
}

func (c costs) ratios(m Measured) (out []float64) {
	for _, part := range []struct {
		base   float64
		points []Point
	}{{c.sequential, m.Sequential}, {c.random, m.Random}} {
		for _, p := range part.points {
			out = append(out, p.IOPS*(part.base+pagesOf(p.Size)*c.page))
		}
	}
	return out
}

// modelRate is the part of a disk's rates that a model for io.cost has. At the full rate the disk's own queue
// fills up as fast as io.cost's, and decides instead of the weights. Weights of 200 and 300 gave 46 and 54
// % of direct writes with a model of exactly the measured rates, and 40 and 60 % with 97 % of them.
const modelRate = 0.97

// WithHeadroom returns the model for io.cost from the rates of a disk.
func WithHeadroom(m blkio.CostModel) blkio.CostModel {
	scaled := func(rate, least uint64) uint64 { return max(least, uint64(math.Round(modelRate*float64(rate)))) }
	return blkio.CostModel{ // the kernel takes no model of less than a page in a second
		Rbps: scaled(m.Rbps, 4096), RSeqIOPS: scaled(m.RSeqIOPS, 1), RRandIOPS: scaled(m.RRandIOPS, 1),
		Wbps: scaled(m.Wbps, 4096), WSeqIOPS: scaled(m.WSeqIOPS, 1), WRandIOPS: scaled(m.WRandIOPS, 1),
	}
}

const (
	// operations is how many operations of a slow disk a period of io.cost has room for at least.
	operations = 64
	// A timer of the kernel can be late by 4 ms (HZ=250), which a period of a fast disk has to
	// outweigh. A period of a slow disk must not be longer than users notice.
	minPeriod = 10 * time.Millisecond
	maxPeriod = 500 * time.Millisecond
)

// Period returns the shortest period of io.cost ([blkio.CostQOS.Period]) with which weights have their effect
// on a disk with a model. With less time, a container that waits for one operation after the other has used
// nothing in many periods. io.cost takes it for idle then, and gives its share to others. On a disk with 1,500
// operations a second, weights of 200 and 300 gave 50 and 50 % with a period of 1 ms. They gave 40 and 60 %
// with 10 ms and more (Linux 6.12).
func Period(m blkio.CostModel) time.Duration {
	rate := max(1, min(m.RRandIOPS, m.WRandIOPS))
	period := operations * time.Second / time.Duration(rate)
	return min(max(period, minPeriod), maxPeriod).Truncate(2 * time.Microsecond)
}

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
