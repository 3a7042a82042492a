package costsim

import (
	"math"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/iocost/follow"
)

// measured runs a mix under the controller, and measures what it does once the controller has settled.
func measured(hasWait bool, add func(*sim)) (row, *driver) {
	s := start(fixed, 1)
	add(s)
	d := control(s)
	d.hasWait = hasWait
	return s.measure(60, 30), d
}

// TestGoals verifies what the controller makes of the mixes that have goals: with cost.wait, and on kernels that do not
// print it.
func TestGoals(t *testing.T) {
	for _, hasWait := range []bool{true, false} {
		for _, tt := range []struct {
			name        string
			size, depth int
			least       float64 // of the disk
		}{{"4 KiB", 4 * kib, 16, .95}, {"32 KiB", 32 * kib, 16, .94}, {"64 KiB", 64 * kib, 16, .94}, {"1 MiB", mib, 4, .93}} {
			r, d := measured(hasWait, func(s *sim) { s.add("a", 100, reads(tt.size, tt.depth)) })
			if got := partOf(r, tt.size); got < tt.least {
				t.Errorf("one alone, %s: %.3f of the disk, want %.2f; %q", tt.name, got, tt.least, d.log)
			}
		}
		r, d := measured(hasWait, func(s *sim) {
			s.add("a", 100, reads(4*kib, 16))
			s.add("b", 100, reads(mib, 4))
		})
		if r.ops+r.bytes < 1.6 {
			t.Errorf("equal weights: %.2f + %.2f of the disk, want 1.6; %q", r.ops, r.bytes, d.log)
		}
		r, d = measured(hasWait, func(s *sim) {
			s.add("a", 200, reads(64*kib, 16))
			s.add("b", 300, reads(64*kib, 16))
		})
		if share := r.each[1] / (r.each[0] + r.each[1]); math.Abs(share-.6) > .01 || r.bytes < .94 {
			t.Errorf("200 : 300: share %.3f, %.2f of the disk; %q", share, r.bytes, d.log)
		}
	}
}

// TestFullDisk verifies that the controller stays with the safe model while the mix uses one of the limits, as a victim of
// small reads does.
func TestFullDisk(t *testing.T) {
	r, d := measured(true, func(s *sim) {
		s.add("victim", 1000, reads(4*kib, 4))
		s.add("neighbour", 10, writers(), reads(4*kib, 32))
	})
	if len(d.sim.writes) != 0 || r.each[0] < 1420 {
		t.Errorf("%d writes, the victim reads %.0f/s; %q", len(d.sim.writes), r.each[0], d.log)
	}
}

// TestArrival verifies that the safe model is back within a second of the first request of another cgroup.
func TestArrival(t *testing.T) {
	s := start(fixed, 1)
	s.add("neighbour", 10, reads(32*kib, 32))
	s.add("victim", 1000, &workload{Size: 4 * kib, Depth: 1, From: 40.1})
	d := control(s)
	s.run(40)
	if d.decision.State != follow.Moved {
		t.Fatalf("%s before the victim comes: %q", d.decision.State, d.log)
	}
	s.run(1.1)
	if d.decision.State != follow.Safe || d.decision.Model != d.controller.Safe || s.frozen {
		t.Errorf("%s one second after the victim came: %q", d.decision.State, d.log)
	}
}
