package annotation

import (
	"math"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestGrowth verifies the rate of a claim that grows with its size: a GiB that has begun counts, and no size overflows.
func TestGrowth(t *testing.T) {
	const gib = 1 << 30
	for _, tt := range []struct {
		text string
		size int64
		want string
	}{
		{"riops=100+3/Gi", 1, "riops=103"},
		{"riops=100+3/Gi", gib, "riops=103"},
		{"riops=100+3/Gi", gib + 1, "riops=106"},
		{"riops=3/Gi", 10 * gib, "riops=30"},
		{"riops=100+3/Gi..16k", 100 * gib, "riops=400"},
		{"riops=100+3/Gi..16k", 10000 * gib, "riops=16000"},
		{"riops=100+3/Gi..100", gib, "riops=100"},
		{"wbps=50Mi+1Mi/Gi..200Mi rbps=1.5Ki/Gi", 10 * gib, "rbps=15360 wbps=62914560"},
		{"riops=1e3+1k/Gi", gib, "riops=2000"},
		{"wiops=3/Gi", math.MaxInt64, "wiops=4294967294"},
		{"wbps=7Ei/Gi", math.MaxInt64, "wbps=9223372036854775806"},
		{"wbps=7Ei+7Ei/Gi", gib, "wbps=9223372036854775806"},
		{"wbps=max", 0, "wbps=max"},
		{"wbps=5Mi", -1, "wbps=5242880"},
	} {
		l, err := ParseClaim("data", tt.text, tt.size)
		if err != nil || l.Entries[0].Limits.String() != tt.want {
			t.Errorf("%s of %d: %v, %v, want %s", tt.text, tt.size, l, err, tt.want)
		}
	}
	for _, size := range []int64{0, -1, math.MinInt64} {
		if _, err := ParseClaim("data", "riops=3/Gi", size); err == nil || err.Cause != "the size of the claim is unknown" {
			t.Errorf("a claim of %d: %v", size, err)
		}
	}
}

// TestSizeOf verifies that a size that is too large is the largest one, in each form, and that none is below zero.
func TestSizeOf(t *testing.T) {
	for text, want := range map[string]int64{
		"10Gi": 10 << 30, "1500m": 2, "7E": 7e18, "10E": math.MaxInt64, "1e36": math.MaxInt64, "10Ei": math.MaxInt64, "9223372036854775807": math.MaxInt64,
		"0": 0, "-1": 0, "-10E": 0, "-10Ei": 0,
	} {
		if got := SizeOf(resource.MustParse(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// TestGrowthErrors verifies that a mistake in a rate that grows has an error with the right form.
func TestGrowthErrors(t *testing.T) {
	const example = " (write for example 100+3/Gi..16k)"
	for text, want := range map[string]string{
		"+3/Gi":         "a number is missing in a rate that grows" + example,
		"/Gi":           "a number is missing in a rate that grows" + example,
		"100+/Gi":       "a number is missing in a rate that grows" + example,
		"3/Gi..":        "a number is missing in a rate that grows" + example,
		"100+3/GiB":     `invalid growth "100+3/GiB"` + example,
		"100+3/G":       `invalid growth "100+3/G"` + example,
		"100+3/Gi..1/G": `"1/G" grows with the size of a claim (only a claim's own annotation and a VolumeAttributesClass can have it; write a whole number such as 2k)`,
		"3/Ti":          `invalid growth "3/Ti"` + example,
		"100..200":      `"100..200" has a maximum, and does not grow` + example,
		"max+3/Gi":      `invalid number "max" in a rate that grows` + example,
		"1+2+3/Gi":      `invalid number "2+3" in a rate that grows` + example,
		"3/Gi..max":     `invalid number "max" in a rate that grows` + example,
		"3/Gi..+5":      `invalid number "+5" in a rate that grows` + example,
		"0+3/Gi":        "riops=0 stops all I/O (write max for no limit)",
		"3+0/Gi":        "riops=0 stops all I/O (write max for no limit)",
		"3/Gi..0":       "riops=0 stops all I/O (write max for no limit)",
		"-1/Gi":         `"-1" is negative (write a whole number such as 2k, or max for no limit)`,
		"1.5/Gi":        `"1.5" is not a whole number (write a whole number such as 2k)`,
		"8G/Gi":         `"8G" is too large (write at most 4294967294, or max for no limit)`,
		"1e+3/Gi":       `invalid quantity "1e" (write a whole number such as 2k)`,
		"100+3/Gi..99":  `maximum "99" is below "100" (write the largest rate after the dots)`,
	} {
		_, err := ParseClaim("data", "riops="+text, 1<<30)
		if err == nil {
			t.Errorf("%s is valid", text)
			continue
		}
		p := Problem{err.Cause, err.Hint}
		if p.String() != want {
			t.Errorf("%s\n got %s\nwant %s", text, p.String(), want)
		}
		checkLine(t, err.Error())
	}
}

// TestGrowthElsewhere verifies that a rate grows on a claim and in a class of claims only.
func TestGrowthElsewhere(t *testing.T) {
	if l, err := ParseRates("data", "fast", map[string]string{OwnPrefix + "riops": "10/Gi..25"}, 2<<30); err != nil || l.Entries[0].Limits[blkio.Riops] != 20 {
		t.Errorf("class: %v, %v", l, err)
	}
	const where = "only a claim's own annotation and a VolumeAttributesClass can have it"
	for _, value := range []string{"/data riops=3/Gi", "@data wbps=1Mi+1Mi/Gi..5Mi", "* wbps=5/Gi"} {
		_, err := ParseAmount(blkio.Riops, value[strings.IndexByte(value, '=')+1:])
		if l := parseLimits("k", value); len(l.errors) != 1 || !strings.HasPrefix(l.errors[0].Hint, where) || err == nil || !strings.HasPrefix(err.Hint, where) {
			t.Errorf("%s: %v, %v", value, l.errors, err)
		}
	}
	if _, err := ParseDriver("data", "d", map[string]string{driverPrefix + "riops": "3/Gi"}); err == nil {
		t.Error("a storage driver can write growth")
	}
}

// TestParseDriver verifies that rates of a storage driver count by their keys, that zero means no limit, and that an error names the
// driver.
func TestParseDriver(t *testing.T) {
	for name, tt := range map[string]struct {
		metadata map[string]string
		want     string
		err      string
	}{
		"linstor": {map[string]string{"qos.linbit.com/device": "/dev/drbd1000", "qos.linbit.com/rbps": "1048576", "qos.linbit.com/wiops": "500"}, "rbps=1048576 wiops=500", ""},
		"zero":    {map[string]string{"qos.linbit.com/rbps": "0"}, "", ""},
		"none":    {map[string]string{"wbps": "1"}, "", ""},
		"garbage": {map[string]string{"qos.linbit.com/wbps": "\x1b[2J"}, "", `nri-blkio: "claim data, driver csi.example.com": "qos.linbit.com/wbps=\x1b[2J": invalid number "\x1b[2J" (write a whole number such as 50Mi)`},
		"large":   {map[string]string{"qos.linbit.com/wiops": "18446744073709551616"}, "", `nri-blkio: "claim data, driver csi.example.com": "qos.linbit.com/wiops=18446744073709551616": "18446744073709551616" is too large (write at most 4294967294, or max for no limit)`},
	} {
		got, text := "", ""
		l, err := ParseDriver("data", "csi.example.com", tt.metadata)
		if l != nil {
			got = l.Entries[0].Limits.String()
		}
		if err != nil {
			text = err.Error()
		}
		if got != tt.want || text != tt.err {
			t.Errorf("%s: %q, %s, want %q, %s", name, got, text, tt.want, tt.err)
		}
	}
}
