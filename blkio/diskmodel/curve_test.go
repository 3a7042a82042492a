package diskmodel

import (
	"math"
	"strings"
	"testing"
)

const kib = 1 << 10

// near compares within a relative tolerance.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*math.Abs(want) {
		t.Errorf("%s is %g, want %g within %g %%", what, got, want, tolerance*100)
	}
}

// bps is a point by its throughput.
func bps(size int, throughput float64) Point { return Point{size, throughput / float64(size)} }

// Bps returns the bytes per second that the disk reaches with blocks of a size.
func (c Curve) Bps(size int) float64 { return c.IOPS(size) * float64(size) }

// MaxBps returns the largest throughput with any block size, in bytes per second.
func (c Curve) MaxBps() float64 { return c.throughput(c.Knee) }

func TestSSD(t *testing.T) {
	c, err := FitCurve([]Point{bps(16*kib, 460e6), bps(4*kib, 270e6), bps(8*kib, 400e6)})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "A", c.A, 70e6, 0.05)
	near(t, "B", c.B, 57_000, 0.02)
	near(t, "C", c.C, -2, 0.02)
	for _, size := range []int{512, kib, 2 * kib} {
		near(t, "below 4 KiB", c.IOPS(size), 270e6/(4*kib), 0)
	}
	// 270 MB/s in blocks of 4000 bytes are 67,500 operations, of 4096 bytes 65,900.
	near(t, "4 KiB", c.IOPS(4*kib), 70_000, 0.06)
	near(t, "8 KiB", c.IOPS(8*kib), 51_000, 0.05)
	near(t, "16 KiB", c.IOPS(16*kib), 29_000, 0.04)
	for _, size := range []int{16 * kib, 64 * kib, 1 << 20} {
		near(t, "from 16 KiB", c.Bps(size), 460e6, 1e-9)
	}
	near(t, "the largest throughput", c.MaxBps(), 460e6, 1e-9)
	if c.Error > 1e-9 {
		t.Errorf("three points are off by %g", c.Error)
	}
	// The function of the text itself, by its values at more points.
	var points []Point
	for size := 4 * kib; size <= 16*kib; size += kib {
		x := float64(size)
		points = append(points, bps(size, 70e6+57_000*x-2*x*x))
	}
	if c, err = FitCurve(points); err != nil {
		t.Fatal(err)
	}
	// Its largest value is at 14,250 bytes, so the last points are about as fast as the knee.
	near(t, "A", c.A, 70e6, 1e-6)
	near(t, "B", c.B, 57_000, 1e-6)
	near(t, "C", c.C, -2, 1e-6)
	if c.Error > 0.03 {
		t.Errorf("off by %g", c.Error)
	}
}

func TestNVMe(t *testing.T) {
	c, err := FitCurve([]Point{{4 * kib, 150_000}, {8 * kib, 150_000}, {16 * kib, 150_000}, {64 * kib, 37_500}})
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{512, 4 * kib, 10_000, 16 * kib} {
		near(t, "up to 16 KiB", c.IOPS(size), 150_000, 1e-6)
	}
	near(t, "64 KiB", c.IOPS(64*kib), 37_500, 1e-6)
	near(t, "the largest throughput", c.MaxBps(), 150_000*16*kib, 1e-6)
}

func TestHardDisk(t *testing.T) {
	c, err := FitCurve([]Point{{4 * kib, 100}, {16 * kib, 100}, {64 * kib, 100}})
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{512, 4 * kib, 32 * kib, 64 * kib} {
		near(t, "up to the largest block", c.IOPS(size), 100, 1e-6)
	}
	one, err := FitCurve([]Point{{4 * kib, 100}})
	if err != nil || one.IOPS(512) != 100 || one.IOPS(8*kib) != 50 || one.Error != 0 {
		t.Errorf("one point: %+v, %v", one, err)
	}
	two, err := FitCurve([]Point{{4 * kib, 100}, {8 * kib, 80}})
	if err != nil || two.IOPS(512) != 100 || math.Abs(two.IOPS(8*kib)-80) > 1e-9 || two.Error > 1e-9 {
		t.Errorf("two points: %+v, %v", two, err)
	}
}

func TestCurveErrors(t *testing.T) {
	for _, tt := range []struct {
		points []Point
		want   string
	}{
		{nil, "no point was measured"},
		{[]Point{{4 * kib, 100}, {4 * kib, 101}}, "two points of 4096 bytes"},
		{[]Point{{0, 100}}, "invalid point: 100 operations/s of 0 bytes"},
		{[]Point{{-1, 100}}, "invalid point"},
		{[]Point{{4 * kib, 0}}, "invalid point"},
		{[]Point{{4 * kib, math.NaN()}}, "invalid point"},
		{[]Point{{4 * kib, math.Inf(1)}}, "invalid point"},
	} {
		if c, err := FitCurve(tt.points); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %+v, %v, want %s", tt.points, c, err, tt.want)
		}
	}
}
