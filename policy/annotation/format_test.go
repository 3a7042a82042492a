package annotation

import (
	"fmt"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestFormatAmount verifies that the text is the shortest exact one.
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

// FuzzFormatAmount verifies that the text of an amount is read as the same amount, and is not longer than its
// digits.
func FuzzFormatAmount(f *testing.F) {
	for _, amount := range []uint64{0, 1, 1000, 1023, 1024, 1 << 32, 1<<63 - 2, 1e18, 3 << 60, 4294967294, 1024 * 1000} {
		f.Add(amount, uint8(amount%4))
	}
	f.Fuzz(func(t *testing.T, amount uint64, key uint8) {
		k := blkio.Key(key % uint8(blkio.NumLimits))
		if amount > uint64(k.Most()) {
			return
		}
		text := FormatAmount(k, blkio.Amount(amount))
		if back, p := ParseAmount(k, text); p != nil || back != blkio.Amount(amount) || len(text) > len(fmt.Sprint(amount)) {
			t.Errorf("%s=%d: %s, which is %d (%v)", k, amount, text, back, p)
		}
	})
}
