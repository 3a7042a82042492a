package diskmodel

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestRandomOf covers the rates of the test node's slow disk, and of one whose bytes cost more than its
// operations. The figures are those of the kernel's formula.
func TestRandomOf(t *testing.T) {
	slow := RandomOf(blkio.CostModel{Rbps: 60 << 20, RSeqIOPS: 1500, RRandIOPS: 1500, Wbps: 30 << 20, WSeqIOPS: 3000, WRandIOPS: 750})
	for _, tt := range []struct {
		name  string
		rates Rates
		size  int
		want  float64
	}{
		{"a page", slow.Reads, 4 * kib, 1500},
		{"less than a page", slow.Reads, 512, 1500},
		{"four pages", slow.Reads, 16 * kib, 1 / (1/1500. + 3*4096/float64(60<<20))},
		{"many pages", slow.Reads, 1 << 20, 1 / (1/1500. + 255*4096/float64(60<<20))},
		{"writes", slow.Writes, 4 * kib, 750},
		{"bytes only", RandomOf(blkio.CostModel{Rbps: 4096 * 100, RRandIOPS: 1e6, Wbps: 4096, WRandIOPS: 1}).Reads, 8 * kib, 50},
	} {
		near(t, tt.name, tt.rates.IOPS(tt.size), tt.want, 1e-9)
	}
}

// TestRandomOfFitted verifies that a fitted model gives the rates that it was fitted to.
func TestRandomOfFitted(t *testing.T) {
	m := linear(200e6, 5000, 1000, exact)
	f, err := FitLinear(m, m)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Random {
		near(t, "fitted", RandomOf(f.Model).Writes.IOPS(p.Size), p.IOPS, 1e-3)
	}
}
