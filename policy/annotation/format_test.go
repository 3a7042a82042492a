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
		{blkio.Wbps, blkio.Unset, blkio.Unset.String()},
		{blkio.Wbps, 1000 << 20, "1000Mi"}, // 1048576k is longer
		{blkio.Wbps, 1000 << 10, "1024k"},  // 1000Ki is longer
		{blkio.Wbps, 9875 << 10, "9875Ki"}, // as long as 10112k
		{blkio.Wbps, 1 << 60, "1Ei"},
		{blkio.Wbps, 1e18, "1E"},
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
