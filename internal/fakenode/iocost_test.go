package fakenode

import (
	"math"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestRandomOf covers the rates of the test node's slow disk, and of one whose bytes cost more than its
// operations. The figures are those of the kernel's formula.
func TestRandomOf(t *testing.T) {
	const kib = 1 << 10
	reads, writes := RandomOf(blkio.CostModel{Rbps: 60 << 20, RSeqIOPS: 1500, RRandIOPS: 1500, Wbps: 30 << 20, WSeqIOPS: 3000, WRandIOPS: 750})
	bytesOnly, _ := RandomOf(blkio.CostModel{Rbps: 4096 * 100, RRandIOPS: 1e6, Wbps: 4096, WRandIOPS: 1})
	for _, tt := range []struct {
		name string
		of   RandomOps
		size int
		want float64
	}{
		{"a page", reads, 4 * kib, 1500},
		{"less than a page", reads, 512, 1500},
		{"four pages", reads, 16 * kib, 1 / (1/1500. + 3*4096/float64(60<<20))},
		{"many pages", reads, 1 << 20, 1 / (1/1500. + 255*4096/float64(60<<20))},
		{"writes", writes, 4 * kib, 750},
		{"bytes only", bytesOnly, 8 * kib, 50},
	} {
		if got := tt.of.IOPS(tt.size); math.Abs(got/tt.want-1) > 1e-9 {
			t.Errorf("%s: %g, want %g", tt.name, got, tt.want)
		}
	}
}
