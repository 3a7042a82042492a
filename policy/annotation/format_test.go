package annotation

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestFormatAmount: the shortest form that is exact.
func TestFormatAmount(t *testing.T) {
	for _, tt := range []struct {
		key    blkio.Key
		amount blkio.Amount
		want   string
	}{
		{blkio.Wbps, blkio.Max, "max"},
		{blkio.Wbps, 50 << 20, "50Mi"},
		{blkio.Wbps, 50_000_000, "50M"},
		{blkio.Wbps, 1<<63 + 5, "9223372036854775813"},
		{blkio.Riops, 2000, "2k"},
		{blkio.Riops, 1024, "1024"},
		{blkio.Weight, 1000, "1000"},
		{blkio.MemoryHigh, 1 << 30, "1Gi"},
	} {
		if got := FormatAmount(tt.key, tt.amount); got != tt.want {
			t.Errorf("%s=%d: got %s, want %s", tt.key, uint64(tt.amount), got, tt.want)
		}
	}
}
