package annotation

import (
	"math/big"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// FuzzRate verifies that a rate is exactly the number that Kubernetes reads, and that our text of it reads as
// the same rate.
func FuzzRate(f *testing.F) {
	for _, s := range []string{
		"max", "0", "1", "50Mi", "0.5Gi", "1.5e3", "+1E6", "1e36", "0.000000001e27", "9223372036854775806", "9223372036854775807",
		"65536.9999999999", "7.999999999Ei", "4294967294", "50MB", "1e2147483647", "-1", "50m", "1.G", "0000000001k", "9.2E", "9.223372036854775806E", "1999999999999999999999999e0",
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, s string, isBytes bool) {
		k := blkio.Riops
		if isBytes {
			k = blkio.Rbps
		}
		rate, p := parseRate(k, s)
		if p != nil {
			checkLine(t, (&Error{Identity: Identity{From: Origin{Annotation: keyDB}, Entry: 1, Text: s}, Cause: p.Cause, Hint: p.Hint}).Error())
			return
		}
		if back, p := parseRate(k, FormatAmount(k, rate)); p != nil || back != rate {
			t.Errorf("%q is %d, written %s, which is %d", s, rate, FormatAmount(k, rate), back)
		}
		if rate == blkio.Max {
			if s != "max" {
				t.Errorf("%q is max", s)
			}
			return
		}
		if want := rational(s); want == nil || new(big.Rat).SetUint64(uint64(rate)).Cmp(want) != 0 {
			t.Errorf("%q is %d, not %v", s, rate, want)
		}
		if q, err := resource.ParseQuantity(s); err != nil || q.CmpInt64(int64(rate)) != 0 {
			t.Errorf("%q is %d, for Kubernetes %s (%v)", s, rate, q.String(), err)
		}
	})
}

// rational reads a quantity without rounding, by another way than parseRate.
func rational(s string) *big.Rat {
	number := strings.TrimRight(s, "kMGTPEi")
	suffix := s[len(number):]
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return nil
	}
	base := int64(1000)
	if strings.HasSuffix(suffix, "i") {
		base, suffix = 1024, suffix[:len(suffix)-1]
	}
	if suffix != "" {
		power := int64(strings.Index("kMGTPE", strings.Replace(suffix, "K", "k", 1)) + 1)
		r.Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(base), big.NewInt(power), nil)))
	}
	return r
}

// TestParseAmount covers each suffix of Kubernetes, without rounding.
func TestParseAmount(t *testing.T) {
	for text, want := range map[string]blkio.Amount{
		"0": 0, "1": 1, "+1": 1, "007": 7, "1.": 1, "2.0": 2, "0.5k": 500, "1.5Ki": 1536, ".5M": 500_000,
		"1k": 1e3, "1M": 1e6, "1G": 1e9, "1T": 1e12, "1P": 1e15, "1E": 1e18,
		"1Ki": 1 << 10, "1Mi": 1 << 20, "1Gi": 1 << 30, "1Ti": 1 << 40, "1Pi": 1 << 50, "1Ei": 1 << 60,
		"1e3": 1e3, "1E3": 1e3, "1.5e3": 1500, "1e+3": 1e3, "0.000000001e27": 1e18, "9223372036854775806": 1<<63 - 2,
		strings.Repeat("0", 39) + "7": 7, "1." + strings.Repeat("0", 9): 1, "1e018": 1e18,
		"max": blkio.Max,
	} {
		if got, p := ParseAmount(blkio.Wbps, text); p != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", text, got, p, want)
		}
	}
	if got, p := ParseAmount(blkio.Wiops, "4294967294"); p != nil || got != 4294967294 {
		t.Errorf("%d, %v", got, p)
	}
	if _, p := ParseAmount(blkio.Wiops, "4294967295"); p == nil {
		t.Error("more operations than the kernel can hold")
	}
}
