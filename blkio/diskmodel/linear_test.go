package diskmodel

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
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

var sizes = []int{4 * kib, 8 * kib, 16 * kib, 32 * kib, 64 * kib, 128 * kib, 512 * kib, 1 << 20}

// linear returns the points of a disk that is as io.cost's model has it: operations take
// 1/iops - 4096/bps seconds and each page 4096/bps (calc_lcoefs in block/blk-iocost.c).
func linear(bps, sequential, random float64, noise func() float64) Measured {
	points := func(iops float64) (out []Point) {
		for _, size := range sizes {
			page := 4096 / bps
			base := max(0, 1/iops-page)
			out = append(out, Point{size, noise() / (base + page*float64(size/4096))})
		}
		return out
	}
	return Measured{Sequential: points(sequential), Random: points(random)}
}

func exact() float64 { return 1 }

func TestFitLinear(t *testing.T) {
	f, err := FitLinear(linear(2706339840, 89698, 110036, exact), linear(1063126016, 135560, 130734, exact))
	if err != nil {
		t.Fatal(err)
	}
	// The kernel's own model of an SSD in the documentation of io.cost.model.
	want := blkio.CostModel{Rbps: 2706339840, RSeqIOPS: 89698, RRandIOPS: 110036, Wbps: 1063126016, WSeqIOPS: 135560, WRandIOPS: 130734}
	if f.Model != want {
		t.Errorf("got %s, want %s", f.Model, want)
	}
	if f.MaxError > 1e-9 || f.MeanError > 1e-9 {
		t.Errorf("off by %g, on average %g", f.MaxError, f.MeanError)
	}
}

// TestFitsThrottledDisk covers a disk that is limited in operations and in bytes, as a cloud's are.
// io.cost adds both costs, so its model is off where both are about equal. It must not give more than the disk
// has with any block size.
func TestFitsThrottledDisk(t *testing.T) {
	var points []Point
	for _, size := range sizes {
		points = append(points, Point{size, min(1500, float64(60<<20)/float64(size))})
	}
	m := Measured{Sequential: points, Random: points}
	f, err := FitLinear(m, m)
	if err != nil {
		t.Fatal(err)
	}
	if f.Model.RSeqIOPS != f.Model.RRandIOPS || f.Model.Rbps != f.Model.Wbps {
		t.Errorf("equal points have the model %s", f.Model)
	}
	near(t, "operations", float64(f.Model.RRandIOPS), 1500, 1e-3)
	near(t, "bytes", float64(f.Model.Rbps), 60<<20, 0.05)
	perPage := 4096 / float64(f.Model.Rbps)
	for _, p := range points {
		rate := 1 / (1/float64(f.Model.RRandIOPS) + (pagesOf(p.Size)-1)*perPage)
		if rate > p.IOPS*1.001 || rate*f.Headroom < p.IOPS*0.999 {
			t.Errorf("%d bytes: %g of %g operations/s", p.Size, rate, p.IOPS)
		}
	}
	near(t, "the rate to which io.cost has to rise", f.Headroom, 1.65, 0.05)
	near(t, "the error", f.MaxError, 1-1/f.Headroom, 1e-6)
	if f.MeanError > f.MaxError || f.MeanError == 0 {
		t.Errorf("off by %g, on average %g", f.MaxError, f.MeanError)
	}
}

func TestFitsSequentialWithoutBase(t *testing.T) {
	m := linear(200e6, 1e12, 100, exact) // a hard disk: blocks that follow one another cost their bytes only
	f, err := FitLinear(m, m)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "bytes", float64(f.Model.Rbps), 200e6, 1e-6)
	near(t, "sequential operations", float64(f.Model.RSeqIOPS), 200e6/4096, 1e-3)
	near(t, "random operations", float64(f.Model.RRandIOPS), 100, 1e-3)
}

// TestFitsOperationsOnly covers a disk that is limited in operations only, as slow hard disks and small
// volumes of a cloud are up to large blocks. io.cost cannot leave out the bytes.
func TestFitsOperationsOnly(t *testing.T) {
	points := []Point{{4 * kib, 100}, {64 * kib, 100}, {1 << 20, 100}}
	flat := Measured{Sequential: points, Random: points}
	rising := Measured{Sequential: []Point{{4 * kib, 100}, {8 * kib, 200}}, Random: []Point{{4 * kib, 100}, {1 << 20, 300}}}
	f, err := FitLinear(flat, rising)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "reads", float64(f.Model.RRandIOPS), 100, 0.01)
	near(t, "bytes", float64(f.Model.Rbps), 100*100<<20, 0.01)
	near(t, "writes", float64(f.Model.WRandIOPS), 100, 0.01)
	near(t, "the rate to which io.cost has to rise", f.Headroom, 3, 0.02)
}

// TestModels has the models of three disks that are no sums. io.cost's model has no block size with more than
// the disk does. The rate of 16 KiB or of large blocks decides, and small blocks have less than they could
// have.
func TestModels(t *testing.T) {
	flat := func(points ...Point) []Point { // the throughput of the last one from there on
		last := points[len(points)-1]
		return append(points, bps(64*kib, last.bps()), bps(1<<20, last.bps()))
	}
	for name, tt := range map[string]struct {
		points   []Point
		want     string // of reads
		headroom float64
	}{
		"an SSD":      {flat(Point{4 * kib, 70_000}, Point{8 * kib, 51_000}, Point{16 * kib, 29_000}), "rbps=476363604 rseqiops=70000 rrandiops=70000", 1.17},
		"an NVMe":     {flat(Point{4 * kib, 150_000}, Point{8 * kib, 150_000}, Point{16 * kib, 150_000}), "rbps=2486857143 rseqiops=150000 rrandiops=150000", 1.74},
		"a hard disk": {[]Point{{4 * kib, 100}, {64 * kib, 100}, {256 * kib, 90}, {1 << 20, 60}}, "rbps=156672000 rseqiops=100 rrandiops=100", 1.05},
	} {
		m := Measured{Sequential: tt.points, Random: tt.points}
		f, err := FitLinear(m, m)
		if err != nil {
			t.Fatal(err)
		}
		reads, _, _ := strings.Cut(f.Model.String(), " wbps=")
		if reads != tt.want || math.Abs(f.Headroom-tt.headroom) > 0.005 {
			t.Errorf("%s: %s, headroom %.2f, want %s, headroom %.2f", name, reads, f.Headroom, tt.want, tt.headroom)
		}
		costs, _ := fakenode.RandomOf(f.Model)
		for _, p := range tt.points {
			if got := costs.IOPS(p.Size); got > p.IOPS*1.001 || got*f.Headroom < p.IOPS*0.999 {
				t.Errorf("%s: %g of %g operations/s of %d bytes", name, got, p.IOPS, p.Size)
			}
		}
	}
}

// TestFitsNoise verifies that with measurements that differ by 5 % the model differs by more: it takes the
// slowest ones.
func TestFitsNoise(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	noise := func() float64 { return 0.95 + rnd.Float64()/10 }
	for range 200 {
		iops := 1000 + rnd.Float64()*100_000
		bps := iops * 4096 * (4 + rnd.Float64()*20)
		m := linear(bps, iops*2, iops, noise)
		f, err := FitLinear(m, m)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		near(t, "bytes", float64(f.Model.Rbps), bps, 0.12)
		near(t, "random operations", float64(f.Model.RRandIOPS), iops, 0.22)
		near(t, "sequential operations", float64(f.Model.RSeqIOPS), iops*2, 0.22)
		if f.MaxError > 0.3 || t.Failed() {
			t.Fatalf("seed %d: %s is off by %g", seed, f.Model, f.MaxError)
		}
	}
}

func TestFitLinearErrors(t *testing.T) {
	right := linear(100e6, 1000, 1000, exact)
	for _, tt := range []struct {
		reads, writes Measured
		want          string
	}{
		{Measured{}, right, "fit reads: no point was measured"},
		{right, Measured{Sequential: right.Sequential}, "fit writes: no point was measured"},
		{right, Measured{Sequential: right.Sequential[:1], Random: right.Random[:1]}, "fit writes: at least three points"},
		{Measured{Sequential: []Point{{4 * kib, math.NaN()}, {8 * kib, 1}}, Random: right.Random}, right, "fit reads: invalid point"},
		{linear(2000, 1, 1, exact), right, "rbps="},
	} {
		f, err := FitLinear(tt.reads, tt.writes)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v, %v, want %s", f, err, tt.want)
		}
	}
}

// TestFittedRates verifies that a fitted model gives the rates that it was fitted to.
func TestFittedRates(t *testing.T) {
	m := linear(200e6, 5000, 1000, exact)
	f, err := FitLinear(m, m)
	if err != nil {
		t.Fatal(err)
	}
	_, writes := fakenode.RandomOf(f.Model)
	for _, p := range m.Random {
		near(t, "fitted", writes.IOPS(p.Size), p.IOPS, 1e-3)
	}
}
