// Package diskmodel turns measurements of a disk into models of it: the operations per second that it reaches with each
// block size, the limits that it has, and io.cost's linear model.
//
// The package does no I/O. All block sizes are bytes, all rates are per second.
package diskmodel

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Point is one measurement: the rate that a disk reaches with blocks of one size.
type Point struct {
	Size int     `json:"size"` // of a block
	IOPS float64 `json:"iops"` // operations per second
}

// bps returns the throughput in bytes per second.
func (p Point) bps() float64 { return float64(p.Size) * p.IOPS }

// Points are the measurements of one kind of operation, the smallest blocks first. There is at least one.
type Points []Point

// NewPoints returns points of different sizes. The error names the points that are no measurement.
func NewPoints(points []Point) (Points, error) {
	out := slices.SortedFunc(slices.Values(points), func(a, b Point) int { return a.Size - b.Size })
	return out, check(out)
}

func check(sorted []Point) error {
	if len(sorted) == 0 {
		return errors.New("no point was measured")
	}
	for i, p := range sorted {
		switch {
		case p.Size <= 0 || !(p.IOPS > 0) || math.IsInf(p.IOPS, 0):
			return fmt.Errorf("invalid point: %g operations/s of %d bytes", p.IOPS, p.Size)
		case i > 0 && p.Size == sorted[i-1].Size:
			return fmt.Errorf("two points of %d bytes", p.Size)
		}
	}
	return nil
}

// IOPS returns the operations per second that the disk reaches with blocks of a size. A disk can transfer a part of a
// block as often as the whole, and no block size above the measured ones has more throughput. Between two measured sizes
// the time of an operation grows evenly.
func (ps Points) IOPS(size int) float64 {
	i, _ := slices.BinarySearchFunc(ps, size, func(p Point, size int) int { return p.Size - size })
	switch i {
	case 0:
		return ps[0].IOPS
	case len(ps):
		return ps[i-1].bps() / float64(size)
	}
	below, above := ps[i-1], ps[i]
	part := float64(size-below.Size) / float64(above.Size-below.Size)
	return 1 / ((1-part)/below.IOPS + part/above.IOPS)
}
