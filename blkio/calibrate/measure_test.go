package calibrate

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// near compares within a relative tolerance.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*math.Abs(want) {
		t.Errorf("%s is %g, want %g within %g %%", what, got, want, tolerance*100)
	}
}

func ignore(float64, string) {}

// idleCPU has processors that are never the bottleneck.
func idleCPU() time.Duration { return 0 }

// measure measures a simulated disk, for reads and for writes.
func measure(t *testing.T, d *simDisk) (m *Measurement, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var err error
		m, err = Measure(t.Context(), Source{Disk: d, Size: 100 * gib, File: d, FileSize: gib, CPUTime: idleCPU}, ignore)
		if err != nil {
			t.Fatal(err)
		}
		took = time.Since(start)
	})
	return m, took
}

// rateOf returns the rate of a simulated disk without seeks.
func (d *simDisk) rateOf(size int) float64 {
	return min(d.iops, d.bps/float64(size))
}

func TestMeasuresDisks(t *testing.T) {
	for name, d := range map[string]*simDisk{
		"throttled": {iops: 1500, bps: 60 * mib, latency: 200 * time.Microsecond},
		"slow":      {iops: 1500, bps: 8 * mib, latency: 300 * time.Microsecond},
		"faster":    {iops: 10_000, bps: 300e6, latency: 500 * time.Microsecond},
		"slowest":   {iops: 30, bps: 4 * mib, latency: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			m, took := measure(t, d)
			near(t, "the rate of reads and writes", m.Mixed, 1, 0.05)
			for _, direction := range []Direction{m.Reads, *m.Writes} {
				for _, points := range [][]diskmodel.Point{direction.Sequential, direction.Random} {
					if len(points) != len(sizes) {
						t.Fatalf("%d points", len(points))
					}
					for _, p := range points {
						near(t, "the rate", p.IOPS, d.rateOf(p.Size), 0.05)
					}
				}
				near(t, "the rate at the end", direction.Last, 1, 0.05)
				if direction.Lowest < 0.97 || direction.Zeros != 0 || direction.CPUBound {
					t.Errorf("%+v", direction)
				}
				// Before the queue grows an operation takes its latency, and the time of one operation.
				if least, most := d.latency, d.latency+time.Duration(4e9/d.iops); direction.Relaxed.P50 < least || direction.Relaxed.P99 > most {
					t.Errorf("latencies %+v are not within %v and %v", direction.Relaxed, least, most)
				}
			}
			if most := deadline - watchTime - prepareTime; took > most {
				t.Errorf("took %v of %v", took, most)
			}
			// So many bytes are on the way that ^C takes effect within a second.
			if drain := float64(d.mostBytes) / d.bps; drain > 0.8 {
				t.Errorf("%d bytes were on the way, %g s", d.mostBytes, drain)
			}
		})
	}
}

func TestMeasuresHardDisk(t *testing.T) {
	m, _ := measure(t, &simDisk{bps: 200e6, seek: 8 * time.Millisecond})
	for _, p := range m.Reads.Random {
		near(t, "the random rate", p.IOPS, 1/(0.008+float64(p.Size)/200e6), 0.05)
	}
	last := m.Reads.Sequential[len(sizes)-1]
	near(t, "the sequential throughput", last.IOPS*float64(last.Size), 200e6, 0.1)
}

func TestQueueDepths(t *testing.T) {
	// Operations that do not wait for one another: the rate grows with the queue depth.
	m, _ := measure(t, &simDisk{iops: 1e6, bps: 300e6, latency: 10 * time.Millisecond})
	if len(m.Reads.Depths) != len(depths) {
		t.Fatalf("tried %+v", m.Reads.Depths)
	}
	for _, d := range m.Reads.Depths {
		near(t, "the rate at a queue depth", d.IOPS, float64(d.Depth)/0.01, 0.03)
		near(t, "the latency", d.Latency.P50.Seconds(), 0.01, 0.01)
	}
	// One that does not is tried with no more than two.
	if m, _ = measure(t, &simDisk{iops: 1500, bps: 60 * mib}); len(m.Reads.Depths) != 2 {
		t.Errorf("tried %+v", m.Reads.Depths)
	}
}

func TestMeasuresBurst(t *testing.T) {
	m, _ := measure(t, &simDisk{iops: 1000, bps: 100 * mib, latency: 100 * time.Microsecond, burst: 20_000})
	if m.Reads.Last > 0.2 {
		t.Errorf("the rate fell to %g", m.Reads.Last)
	}
	near(t, "the rate that counts", m.Reads.Random[0].IOPS, 1000, 0.03)
	near(t, "the rate of writes", m.Writes.Last, 1, 0.03)
}

// TestMixed covers reads and writes that are throttled apart, as some clouds' are.
func TestMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, written := &simDisk{iops: 2000, bps: 60 * mib}, &simDisk{iops: 1000, bps: 60 * mib}
		m, err := Measure(t.Context(), Source{Disk: read, Size: 100 * gib, File: written, FileSize: gib, CPUTime: idleCPU}, ignore)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "the rate of reads and writes", m.Mixed, 1.5, 0.03)
	})
}

// TestCPUBound verifies that a bottleneck is the processors, not the disk, if the threads use them, or wait for
// one, for most of the time.
func TestCPUBound(t *testing.T) {
	for part, want := range map[float64]bool{0.4: false, 1.5: true} { // of the time of one thread
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			used := func() time.Duration { return time.Duration(part * float64(time.Since(start))) }
			l := load{size: smallest, depth: 2}
			got, err := l.run(t.Context(), area{(&simDisk{iops: 1500, bps: 60 * mib}).ReadAt, gib, used})
			if err != nil || got.isCPUBound != want {
				t.Errorf("%g of a processor: %v, %v", part, got.isCPUBound, err)
			}
		})
	}
}

// TestDeeper verifies that a disk is the bottleneck if more operations at the same time do not need more of the processors, as on
// a slow node with a slow disk, and that otherwise the processors are.
func TestDeeper(t *testing.T) {
	for processors, want := range map[float64]bool{2.4: false, 100: true} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			used := func() time.Duration { return time.Duration(processors * float64(time.Since(start))) }
			d := &simDisk{iops: 1500, bps: 60 * mib, latency: 200 * time.Microsecond}
			m, err := Measure(t.Context(), Source{Disk: d, Size: gib, CPUTime: used}, ignore)
			if err != nil || m.Reads.CPUBound != want {
				t.Errorf("%g processors: %+v, %v", processors, m, err)
			}
		})
	}
}

func TestReadsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &simDisk{iops: 1500, bps: 60 * mib, zeros: true}
		var parts []float64
		m, err := Measure(t.Context(), Source{Disk: d, Size: gib, CPUTime: idleCPU}, func(done float64, _ string) { parts = append(parts, done) })
		if err != nil || m.Writes != nil || m.Reads.Zeros != 1 {
			t.Errorf("%v, writes %v, %g of blocks are zero", err, m.Writes, m.Reads.Zeros)
		}
		for i, part := range parts {
			if part < 0 || part >= 1 || i > 0 && part <= parts[i-1] {
				t.Errorf("progress %v", parts)
				break
			}
		}
	})
}

func TestMeasureErrors(t *testing.T) {
	gone := &simDisk{iops: 1500, bps: 60 * mib, fail: func(n int) error {
		if n > 3000 {
			return unix.ENODEV
		}
		return nil
	}}
	stuck := &simDisk{iops: 1.0 / 100, bps: mib}
	for name, tt := range map[string]struct {
		disk *simDisk
		want error
		most time.Duration
	}{
		"a disk that disappears": {gone, unix.ENODEV, 10 * time.Second},
		"a deadline":             {&simDisk{iops: 1500, bps: 60 * mib}, context.DeadlineExceeded, 6 * time.Second},
		"a disk that is stuck":   {stuck, context.DeadlineExceeded, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				start := time.Now()
				_, err := Measure(ctx, Source{Disk: tt.disk, Size: gib, File: tt.disk, FileSize: gib, CPUTime: idleCPU}, ignore)
				if took := time.Since(start); !errors.Is(err, tt.want) || took > tt.most {
					t.Errorf("%v after %v", err, took)
				}
				time.Sleep(10 * time.Minute) // until the operations on the way have ended
			})
		})
	}
}

func TestUndelay(t *testing.T) {
	for _, tt := range []struct{ in, want [4]float64 }{
		{[4]float64{1500, 1500, 960, 60}, [4]float64{1500, 1500, 960, 60}},
		{[4]float64{1400, 1500, 940, 55}, [4]float64{1400, 1500, 940, 55}}, // noise
		{[4]float64{700, 1500, 960, 60}, [4]float64{1500, 1500, 960, 60}},
		{[4]float64{1500, 1500, 960, 20}, [4]float64{1500, 1500, 960, 60}},
		{[4]float64{1500, 1500, 200, 60}, [4]float64{1500, 1500, 750, 60}}, // as much as 32 KiB
	} {
		var points []diskmodel.Point
		for i, size := range []int{4 * kib, 32 * kib, 64 * kib, mib} {
			points = append(points, diskmodel.Point{Size: size, IOPS: tt.in[i]})
		}
		undelay(points)
		for i, p := range points {
			near(t, "the rate", p.IOPS, tt.want[i], 1e-9)
		}
	}
}

// TestDelayed verifies that a moment in which nothing happens, as with processors that others use, does not
// change the figures.
func TestDelayed(t *testing.T) {
	d := &simDisk{iops: 1500, bps: 60 * mib}
	delays := 0
	d.fail = func(operations int) error {
		if operations%8000 == 7000 {
			delays++
			d.free = time.Now().Add(300 * time.Millisecond)
		}
		return nil
	}
	m, _ := measure(t, d)
	for _, direction := range []*Direction{&m.Reads, m.Writes} {
		for _, p := range append(direction.Sequential, direction.Random...) {
			near(t, "the rate", p.IOPS, d.rateOf(p.Size), 0.06)
		}
	}
	if delays < 3 {
		t.Errorf("only %d delays", delays)
	}
}

// TestRetries verifies that a load with a pause is applied once more, a few times. If each load has one, the
// disk itself causes it, and the figures show it.
func TestRetries(t *testing.T) {
	for name, tt := range map[string]struct {
		most   int // pauses
		pause  time.Duration
		least  float64    // part of the disk's rate
		lowest [2]float64 // bounds
	}{
		"once":         {1, 90 * time.Millisecond, 0.97, [2]float64{0.97, 1}},
		"three times":  {3, 90 * time.Millisecond, 0.97, [2]float64{0.97, 1}},
		"in each load": {1000, 300 * time.Millisecond, 0.45, [2]float64{0.3, steady}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, pauses, loads, start := &simDisk{iops: 1500, bps: 60 * mib}, 0, 0, time.Now()
				d.fail = func(int) error {
					if since := time.Since(start); pauses < tt.most && loads > 3 && since > 300*time.Millisecond && since < 310*time.Millisecond {
						pauses++
						d.free = time.Now().Add(tt.pause)
						start = time.Time{} // once for each load
					}
					return nil
				}
				reads := 0 // of the processors' time: two by each load
				m, err := Measure(t.Context(), Source{Disk: d, Size: gib, CPUTime: func() time.Duration { reads++; return 0 }}, func(float64, string) {
					d.mu.Lock()
					defer d.mu.Unlock()
					loads++
					start = time.Now()
				})
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range append(m.Reads.Sequential, m.Reads.Random...) {
					if got := p.IOPS / d.rateOf(p.Size); got < tt.least || got > 1.05 {
						t.Errorf("%d bytes: %g of the disk's rate", p.Size, got)
					}
				}
				if m.Reads.Lowest < tt.lowest[0] || m.Reads.Lowest > tt.lowest[1] {
					t.Errorf("the lower half has %g of the rate", m.Reads.Lowest)
				}
				if again, want := reads/2-loads, min(tt.most, retries); again != want || pauses < want {
					t.Errorf("%d loads were applied once more after %d pauses, want %d", again, pauses, want)
				}
			})
		})
	}
}
