package calibrate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// operationsAt returns operations that ended at these milliseconds, with latencies of 1, 2, 3, ...
// milliseconds.
func operationsAt(at ...float64) (out []operation) {
	for i, ms := range at {
		out = append(out, operation{at: time.Duration(ms * float64(time.Millisecond)), latency: time.Duration(i+1) * time.Millisecond})
	}
	return out
}

// every returns n operations, one each so many milliseconds, from a time on.
func every(from, ms float64, n int) (out []float64) {
	for i := range n {
		out = append(out, from+ms*float64(i))
	}
	return out
}

func TestRate(t *testing.T) {
	for name, tt := range map[string]struct {
		operations []operation
		want       float64
	}{
		"none":                     {nil, 0},
		"one":                      {operationsAt(300), 0},
		"two":                      {operationsAt(300, 400), 10},
		"two at the same time":     {operationsAt(300, 300), 0},
		"regular":                  {operationsAt(every(200, 2, 100)...), 500},
		"pairs, as of two workers": {operationsAt(slices.Sorted(slices.Values(append(every(200, 2, 100), every(200, 2, 100)...)))...), 1000},
		"a late first one":         {operationsAt(append(every(200, 2, 100), 900)...), 285},
	} {
		near(t, name, rate(tt.operations), tt.want, 0.02)
	}
	if _, err := (outcome{operations: operationsAt(300)}).rate(); err == nil || err.Error() != "only 1 operations ended within 1.2s" {
		t.Error(err)
	}
}

// TestLowest verifies that the rate of the slower half counts, if there are enough operations to compare.
func TestLowest(t *testing.T) {
	for name, tt := range map[string]struct {
		at   []float64
		want float64
	}{
		"none":                 {nil, 1},
		"regular":              {every(200, 2, 300), 1},
		"a slow second half":   {append(every(200, 1, 200), every(400, 4, 200)...), 0.68},
		"a slow first half":    {append(every(200, 4, 200), every(1000, 1, 200)...), 0.68},
		"a pause in a half":    {append(every(200, 2, 100), every(700, 2, 300)...), 0.69},
		"enough to tell":       {append(every(200, 1, enough/2), every(232, 4, enough/2)...), 0.68},
		"too few to tell":      {append(every(200, 1, enough/2-1), every(232, 4, enough/2-1)...), 1},
		"all at the same time": {every(200, 0, 300), 1},
	} {
		if got := (outcome{operations: operationsAt(tt.at...)}).lowest(); got < tt.want-0.05 || got > tt.want+0.05 {
			t.Errorf("%s: %g, want %g", name, got, tt.want)
		}
	}
}

func TestPercentiles(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		n    int
		want Latency
	}{
		{0, Latency{}},
		{1, Latency{ms, ms, ms, ms}},
		{2, Latency{2 * ms, 2 * ms, 2 * ms, 2 * ms}},
		{4, Latency{3 * ms, 4 * ms, 4 * ms, 4 * ms}},
		{100, Latency{51 * ms, 76 * ms, 96 * ms, 100 * ms}},
		{1000, Latency{501 * ms, 751 * ms, 951 * ms, 991 * ms}},
	} {
		operations := operationsAt(every(200, 1, tt.n)...)
		slices.Reverse(operations)
		if got := (outcome{operations: operations}).latencies(); got != tt.want {
			t.Errorf("of %d: %+v, want %+v", tt.n, got, tt.want)
		}
	}
}

// TestOutcome verifies that operations are in the order of their completion, whichever worker did them. Those
// that ended while no new ones were submitted are left out, unless no rate would remain.
func TestOutcome(t *testing.T) {
	for _, tt := range []struct{ operations, depth, want int }{{10, 4, 6}, {6, 4, 2}, {5, 4, 5}, {2, 128, 2}, {0, 1, 0}} {
		r := &running{load: load{depth: tt.depth}, operations: operationsAt(every(200, 1, tt.operations)...)}
		slices.Reverse(r.operations)
		got := r.outcome().operations
		if len(got) != tt.want || !slices.IsSortedFunc(got, func(a, b operation) int { return int(a.at - b.at) }) || len(got) > 0 && got[0].at != warmUp {
			t.Errorf("%d at queue depth %d: %d are left, want %d: %v", tt.operations, tt.depth, len(got), tt.want, got)
		}
	}
	o := outcome{operations: []operation{{isZero: true}, {}, {}, {isZero: true}}}
	if o.zeros() != 0.5 || (outcome{}).zeros() != 0 {
		t.Errorf("%g of the blocks have zeros only, %g of none", o.zeros(), (outcome{}).zeros())
	}
}

// TestOffsets verifies that each operation is on whole blocks within the area. A sequential load uses all
// blocks in order and starts again at the first one. An incomplete block at the end of the area is not used.
func TestOffsets(t *testing.T) {
	for _, tt := range []struct{ area, size int64 }{{gib, 4 * kib}, {10*mib + 512, mib}, {mib, mib}, {mib - 1, mib}, {64*mib + 4095, 256 * kib}} {
		blocks := area{size: tt.area}.blocks(int(tt.size))
		for _, isRandom := range []bool{false, true} {
			r := &running{load: load{isRandom: isRandom, size: int(tt.size)}, on: area{size: tt.area}, first: blocks - 1}
			seen, previous := map[int64]bool{}, (blocks-1)*tt.size
			for n := int64(1); n <= min(blocks, 1000); n++ {
				at := r.offset(n)
				if at < 0 || at%tt.size != 0 || at > max(0, tt.area-tt.size) {
					t.Fatalf("%+v: offset %d", tt, at)
				}
				if next := (previous + tt.size) % (blocks * tt.size); !isRandom && at != next {
					t.Fatalf("%+v: offset %d after %d", tt, at, previous)
				}
				seen[at], previous = true, at
			}
			if !isRandom && int64(len(seen)) != min(blocks, 1000) || isRandom && blocks > 1000 && len(seen) < 900 {
				t.Errorf("%+v, random %v: only %d of %d blocks", tt, isRandom, len(seen), blocks)
			}
		}
	}
}

// TestPace verifies that a load with a pace has that rate, and latencies without a queue. A disk that is slower
// has its own rate.
func TestPace(t *testing.T) {
	for pace, want := range map[float64]float64{100: 100, 900: 900, 2000: 1000, 0: 1000} {
		synctest.Test(t, func(t *testing.T) {
			d := &simDisk{iops: 1000, latency: 2 * time.Millisecond}
			o, err := load{isRandom: true, size: smallest, depth: 16, pace: pace}.run(t.Context(), area{d.ReadAt, gib, idleCPU})
			if err != nil {
				t.Fatal(err)
			}
			got, err := o.rate()
			if err != nil {
				t.Fatal(err)
			}
			near(t, "the rate", got, want, 0.03)
			if latency := o.latency(50); pace > 0 && pace < 1000 && latency > 4*time.Millisecond || latency < 3*time.Millisecond {
				t.Errorf("%g operations/s: a latency of %v", pace, latency)
			}
		})
	}
}

// failAt fails one operation.
func failAt(number int, err error) func(operations int) error {
	return func(operations int) error {
		if operations == number {
			return err
		}
		return nil
	}
}

// TestLoadEnds verifies that a load takes as long as it needs for enough operations, within bounds. It stops at
// once with its context and at an error, also while its workers wait for their turn.
func TestLoadEnds(t *testing.T) {
	failed := errors.New("medium error")
	for name, tt := range map[string]struct {
		disk        *simDisk
		load        load
		cancelAfter time.Duration
		least, most time.Duration
		err         error
	}{
		"a fast disk":         {disk: &simDisk{iops: 1000}, load: load{depth: 4}, least: shortest, most: shortest + 10*time.Millisecond},
		"a slow disk":         {disk: &simDisk{iops: 20}, load: load{depth: 1}, least: longest, most: longest + 50*time.Millisecond},
		"as many as needed":   {disk: &simDisk{iops: 70}, load: load{depth: 1}, least: shortest + 200*time.Millisecond, most: longest},
		"cancelled":           {disk: &simDisk{iops: 1000}, load: load{depth: 4}, cancelAfter: 300 * time.Millisecond, most: 310 * time.Millisecond, err: context.Canceled},
		"cancelled, waiting":  {disk: &simDisk{iops: 1000}, load: load{depth: 4, pace: 0.1}, cancelAfter: 300 * time.Millisecond, most: 310 * time.Millisecond, err: context.Canceled},
		"cancelled, stuck":    {disk: &simDisk{iops: 0.01}, load: load{depth: 4}, cancelAfter: 300 * time.Millisecond, most: 300*time.Millisecond + patience, err: context.Canceled},
		"an error of a block": {disk: &simDisk{iops: 1000, fail: failAt(100, failed)}, load: load{depth: 4}, most: 110 * time.Millisecond, err: failed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancelAfter > 0 {
					time.AfterFunc(tt.cancelAfter, cancel)
				}
				tt.load.size = smallest
				start := time.Now()
				o, err := tt.load.run(ctx, area{tt.disk.WriteAt, gib, idleCPU})
				if took := time.Since(start); !errors.Is(err, tt.err) || took < tt.least || took > tt.most {
					t.Errorf("%d operations, %v, took %v", len(o.operations), err, took)
				}
				time.Sleep(time.Hour) // until the operations on the way have ended
			})
		})
	}
}

// TestTooSlow verifies that the error names the load at which a disk ended not even two operations.
func TestTooSlow(t *testing.T) {
	for want, tt := range map[string]Source{
		"read at queue depth 1: only 1 operations ended within 1.2s": {Disk: &simDisk{iops: 0.8}},
		"write at queue depth 1: only ":                              {Disk: slowDisk(), File: &simDisk{iops: 0.8}},
	} {
		synctest.Test(t, func(t *testing.T) {
			tt.Size, tt.FileSize, tt.CPUTime = gib, gib, idleCPU
			m, err := Measure(t.Context(), tt, ignore)
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%+v, %v, want %s", m, err, want)
			}
		})
	}
}
