// Package diskmodel turns measurements of a disk into two models of it. One is a curve of the operations per
// second that the disk reaches with each block size, the other io.cost's linear model.
//
// The package does no I/O. All block sizes are bytes, all rates are per second.
package diskmodel

import (
	"cmp"
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

// Curve is the rate that a disk reaches as a function of the block size. It has three parts:
//
//   - Up to the size at which the throughput reaches its maximum, the knee, the throughput is a
//     quadratic function of the size, which fits the measured points.
//   - With larger blocks the throughput is constant: the disk's interface or its media is the
//     bottleneck.
//   - No block size has more than a largest number of operations per second: the disk's
//     controller is the bottleneck.
type Curve struct {
	// A, B and C are the coefficients of the throughput A + B*size + C*size*size.
	A, B, C float64
	// Least is the smallest block size that was measured. Smaller blocks have its rate at least.
	Least int
	// Knee is the block size from which on the throughput is constant.
	Knee int
	// MaxIOPS is the largest number of operations per second with any block size.
	MaxIOPS float64
	// Error is the largest relative difference between the curve and a measured point.
	Error float64
}

// FitCurve returns the curve that fits points of different sizes. The error names the points that are no measurement.
//
// The knee is the point with which the curve fits best. It is not always the one with the largest throughput:
// among points of about the same throughput, noise decides which one that is.
func FitCurve(points []Point) (Curve, error) {
	points = slices.Clone(points)
	slices.SortFunc(points, func(a, b Point) int { return a.Size - b.Size })
	if err := check(points); err != nil {
		return Curve{}, err
	}
	maxIOPS := slices.MaxFunc(points, func(a, b Point) int { return cmp.Compare(a.IOPS, b.IOPS) }).IOPS
	best := Curve{Error: math.Inf(1)}
	for knee := range points {
		if c := fitWith(points, knee, maxIOPS); c.Error < best.Error {
			best = c
		}
	}
	return best, nil
}

// fitWith returns the curve with the knee at a point.
func fitWith(points []Point, knee int, maxIOPS float64) Curve {
	c := Curve{Least: points[0].Size, Knee: points[knee].Size, MaxIOPS: maxIOPS}
	c.A, c.B, c.C = fitQuadratic(points[:knee+1])
	for _, p := range points {
		c.Error = max(c.Error, math.Abs(c.IOPS(p.Size)/p.IOPS-1))
	}
	return c
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

// IOPS returns the operations per second that the disk reaches with blocks of a size. A disk can
// transfer a part of a block as often as the whole, so below the measured sizes the function must
// not fall. Where larger blocks have about the same rate, it would fall below 0.
func (c Curve) IOPS(size int) float64 {
	rate := c.throughput(size) / float64(size)
	if size < c.Least {
		rate = max(rate, c.throughput(c.Least)/float64(c.Least))
	}
	return min(rate, c.MaxIOPS)
}

// throughput returns the bytes per second without the bound of operations. A quadratic function
// through few points can be far above all of them in between, but no block size is faster than that
// of the knee.
func (c Curve) throughput(size int) float64 {
	of := func(size int) float64 { return c.A + (c.B+c.C*float64(size))*float64(size) }
	return min(of(min(size, c.Knee)), of(c.Knee))
}

// fitQuadratic returns the coefficients of the quadratic function of the size that fits the throughput best, by
// least squares of the relative errors. It is exact for up to three points. For fewer than three points the
// missing coefficients are 0, so one point gives a constant number of operations per second.
func fitQuadratic(points []Point) (a, b, c float64) {
	switch len(points) {
	case 1:
		return 0, points[0].IOPS, 0
	case 2:
		p, q := points[0], points[1]
		b = (q.bps() - p.bps()) / float64(q.Size-p.Size)
		return p.bps() - b*float64(p.Size), b, 0
	}
	// Sizes in units of the largest one keep the equations well conditioned.
	unit := float64(points[len(points)-1].Size)
	rows := make([][]float64, len(points))
	for i, p := range points {
		x, y := float64(p.Size)/unit, p.bps()
		rows[i] = []float64{1 / y, x / y, x * x / y}
	}
	s := solve(rows)
	return s[0], s[1] / unit, s[2] / unit / unit
}

// solve returns the coefficients for which the sum over each row is nearest to 1, by least squares. The rows
// are the terms of a model divided by the measured value. The columns must not depend on one another.
func solve(rows [][]float64) []float64 {
	n := len(rows[0])
	m := make([][]float64, n) // the normal equations, with the right side as the last column
	for i := range m {
		m[i] = make([]float64, n+1)
		for _, row := range rows {
			for j := range n {
				m[i][j] += row[i] * row[j]
			}
			m[i][n] += row[i]
		}
	}
	for i := range m { // Gauss-Jordan, with the largest pivot
		pivot := i
		for k := i + 1; k < n; k++ {
			if math.Abs(m[k][i]) > math.Abs(m[pivot][i]) {
				pivot = k
			}
		}
		m[i], m[pivot] = m[pivot], m[i]
		for k := range m {
			if k == i {
				continue
			}
			f := m[k][i] / m[i][i]
			for j := i; j <= n; j++ {
				m[k][j] -= f * m[i][j]
			}
		}
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = m[i][n] / m[i][i]
	}
	return out
}
