package diskmodel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// measured has the block sizes of a calibration.
func measured() []int {
	return []int{4 * kib, 8 * kib, 16 * kib, 32 * kib, 64 * kib, 256 * kib, 1 << 20}
}

// kinds has the rates of random operations for disks of several kinds.
func kinds() map[string]func(size float64) float64 {
	return map[string]func(size float64) float64{
		"an SSD": func(size float64) float64 {
			return (70e6 + 57_000*min(size, 14_000) - 2*min(size, 14_000)*min(size, 14_000)) / size
		},
		"an NVMe":              func(size float64) float64 { return min(150_000, 150_000*16*kib/size) },
		"a hard disk":          func(size float64) float64 { return 1 / (0.01 + size/150e6) },
		"a cloud's volume":     func(size float64) float64 { return min(1500, (60<<20)/size) },
		"operations only":      func(float64) float64 { return 100 },
		"bytes only":           func(size float64) float64 { return 200e6 / size },
		"each page has a cost": func(size float64) float64 { return 1 / (1/110_036. + (size/4096-1)*4096/2706339840) },
	}
}

// TestCurveShape verifies that the curve of each kind of disk is near the disk with each block size, although
// each point is off by up to 5 %. A quadratic function can be below 0 before its first point, and far above the
// largest throughput between two points.
func TestCurveShape(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for name, rate := range kinds() {
		for range 500 {
			var points []Point
			for _, size := range measured() {
				points = append(points, Point{size, rate(float64(size)) * (0.95 + rnd.Float64()/10)})
			}
			c, err := FitCurve(points)
			if err != nil {
				t.Fatalf("%s: seed %d: %v", name, seed, err)
			}
			for size := 512; size <= 4<<20; size = size*9/8 + 1 {
				got, want := c.IOPS(size), rate(float64(size))
				switch {
				case !(got > 0) || got > c.MaxIOPS || c.Bps(size) > c.MaxBps()*1.000001:
				case size > 1<<20, size < c.Least && got >= c.IOPS(c.Least)*0.999999:
					continue // of these the points show no more
				case size >= c.Least && math.Abs(got/want-1) < 0.35:
					continue
				}
				t.Fatalf("%s: seed %d: %g operations/s of %d bytes, want %g: %v gave %+v", name, seed, got, size, want, points, c)
			}
		}
	}
}

// TestKneeInNoise verifies that the last points have about the same throughput, and the largest block is the
// fastest of them. The knee is where the throughput stops rising all the same.
func TestKneeInNoise(t *testing.T) {
	points := []Point{{4 * kib, 28_965}, {8 * kib, 29_182}, {16 * kib, 30_829}, {32 * kib, 31_179}, {64 * kib, 15_436}, {256 * kib, 3_771}, {1 << 20, 1_024}}
	c, err := FitCurve(points)
	if err != nil {
		t.Fatal(err)
	}
	if c.Knee != 32*kib || c.Error > 0.1 {
		t.Errorf("a knee at %d bytes, off by %g", c.Knee, c.Error)
	}
	for _, p := range points {
		near(t, "the rate", c.IOPS(p.Size), p.IOPS, c.Error+1e-9)
	}
}

// TestFewPoints verifies that the curve goes through one, two or three points. Blocks that are smaller than all
// of them have at least the rate of the smallest one.
func TestFewPoints(t *testing.T) {
	for _, points := range [][]Point{
		{{4 * kib, 100}},
		{{64 * kib, 100}},
		{{4 * kib, 1000}, {8 * kib, 1100}},
		{{4 * kib, 1000}, {8 * kib, 1140}, {16 * kib, 1200}},
		{{4 * kib, 1000}, {8 * kib, 500}, {16 * kib, 250}},
	} {
		c, err := FitCurve(points)
		if err != nil || c.Error > 1e-9 {
			t.Errorf("%v: %+v, %v", points, c, err)
		}
		for size := 1; size < points[0].Size; size = size*3/2 + 1 {
			if got := c.IOPS(size); got < points[0].IOPS*0.999999 {
				t.Errorf("%v: %g operations/s of %d bytes", points, got, size)
				break
			}
		}
		last := points[len(points)-1]
		near(t, "blocks of 1 MiB", c.Bps(1<<20), last.bps(), 1e-9)
	}
}
