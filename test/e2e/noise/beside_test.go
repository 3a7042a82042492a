package noise

import (
	"math"
	"testing"
	"time"
)

// at returns a sample after so many quarters of a second, with operations of the victim.
func at(quarters int, victimOps, wrote, read, ops int64) sample {
	return sample{at: time.Unix(1000, 0).Add(time.Duration(quarters) * sampleEvery), victim: 4096 * victimOps, wrote: wrote, read: read, operations: ops}
}

// TestBeside verifies that I/O of the neighbour before the victim's first I/O and after its last one does not
// count.
func TestBeside(t *testing.T) {
	samples := []sample{
		at(0, 7, 0, 0, 0),
		at(1, 7, 100*MiB, 0, 100),
		at(2, 100, 150*MiB, 0, 150), // it has begun
		at(3, 457, 151*MiB, 0, 155),
		at(4, 457, 151*MiB, 0, 155), // it waits
		at(5, 1300, 153*MiB, 3<<19, 177),
		at(6, 1300, 156*MiB, 3*MiB, 225), // the last before it ends
		at(7, 1301, 200*MiB, 3*MiB, 400),
		at(8, 1301, 300*MiB, 3*MiB, 500),
	}
	got, err := beside(whileActive(samples))
	if err != nil {
		t.Fatal(err)
	}
	// In a second: 1,200 operations of the victim, which leave 300, and 75 of the neighbour.
	want := Beside{Rates: Rates{Wrote: 6, Read: 3}, Part: 75. / 300}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for name, samples := range map[string][]sample{"no I/O": {at(0, 7, 0, 0, 0), at(1, 7, 1, 0, 1), at(2, 7, 2, 0, 2)}, "one moment": samples[:3], "nothing": nil} {
		if got, err := beside(whileActive(samples)); err == nil {
			t.Errorf("%s: got %+v, want an error", name, got)
		}
	}
}

// TestPart verifies that the part is the neighbour's share of what the victim leaves of the disk: of its
// operations or of its bytes, whichever is larger.
func TestPart(t *testing.T) {
	for _, tt := range []struct {
		name                string
		victim, bytes, iops int64 // in a second
		want                float64
	}{
		{"alone, all bytes", 0, 60 * MiB, 100, 1},
		{"alone, all operations", 0, 6 * MiB, 1500, 1},
		{"half of the operations, and more of the bytes", 0, 45 * MiB, 750, 0.75},
		{"half of what a victim leaves", 1400, 1 * MiB, 50, 0.5},
		{"a victim that takes more than the disk has", 1510, 4096 * 15, 15, 1},
		{"nothing", 1400, 0, 0, 0},
	} {
		got, err := beside([]sample{at(0, 0, 0, 0, 0), at(4, tt.victim, tt.bytes, 0, tt.iops)})
		if err != nil || math.Abs(got.Part-tt.want) > 1e-9 {
			t.Errorf("%s: part is %.3f (%v), want %.3f", tt.name, got.Part, err, tt.want)
		}
	}
}
