package diskmodel

import (
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

func TestPeriod(t *testing.T) {
	for _, tt := range []struct {
		reads, writes uint64
		want          time.Duration
	}{
		{1500, 1500, 42666 * time.Microsecond},
		{3000, 1500, 42666 * time.Microsecond}, // the slower direction
		{100, 100, 500 * time.Millisecond},
		{400_000, 300_000, 10 * time.Millisecond},
		{0, 0, 500 * time.Millisecond},
	} {
		if got := Period(blkio.CostModel{RRandIOPS: tt.reads, WRandIOPS: tt.writes}); got != tt.want {
			t.Errorf("%d and %d operations/s: %v, want %v", tt.reads, tt.writes, got, tt.want)
		}
	}
}
