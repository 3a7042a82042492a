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

// measured has the block sizes of a calibration.
func measured() []int {
	return []int{4 * kib, 8 * kib, 16 * kib, 32 * kib, 64 * kib, 256 * kib, 1 << 20}
}

// TestPointsOfDisks verifies that the measured rates are kept, and that those of other sizes are near the disk's.
func TestPointsOfDisks(t *testing.T) {
	for name, rate := range map[string]func(size float64) float64{
		"an NVMe":              func(size float64) float64 { return min(150_000, 150_000*16*kib/size) },
		"a hard disk":          func(size float64) float64 { return 1 / (0.01 + size/150e6) },
		"a cloud's volume":     func(size float64) float64 { return min(1500, (60<<20)/size) },
		"operations only":      func(float64) float64 { return 100 },
		"bytes only":           func(size float64) float64 { return 200e6 / size },
		"each page has a cost": func(size float64) float64 { return 1 / (1/110_036. + (size/4096-1)*4096/2706339840) },
	} {
		ps, err := NewPoints(rates(rate))
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range measured() {
			near(t, name, ps.IOPS(size), rate(float64(size)), 1e-9)
		}
		for size := 4 * kib; size <= 1<<20; size = size*9/8 + 1 {
			near(t, name, ps.IOPS(size), rate(float64(size)), 0.15)
		}
		near(t, name, ps.IOPS(512), ps[0].IOPS, 0)
		near(t, name, ps.IOPS(4<<20)*4, ps[len(ps)-1].IOPS, 1e-9)
	}
}

func TestNewPoints(t *testing.T) {
	if ps, err := NewPoints([]Point{{16 * kib, 50}, {4 * kib, 100}}); err != nil || ps.IOPS(4*kib) != 100 || math.Abs(ps.IOPS(10*kib)-200./3) > 1e-9 {
		t.Errorf("%+v, %v", ps, err)
	}
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
		if ps, err := NewPoints(tt.points); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %+v, %v, want %s", tt.points, ps, err, tt.want)
		}
	}
}
