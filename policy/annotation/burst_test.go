package annotation

import (
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestBursts verifies the keys of bursts, their values, and their canonical form.
func TestBursts(t *testing.T) {
	for value, want := range map[string]string{
		"* wbps=20Mi wbps.burst=100Mi/60s":                 "wbps=20Mi wbps.burst=100Mi/60s",
		"* wbps.burst=+0.1e9/1m\twbps=20Mi":                "wbps=20Mi wbps.burst=100M/60s",
		"* bps=1Mi rbps.burst=2Mi/59m60s":                  "rbps=1Mi rbps.burst=2Mi/3600s wbps=1Mi",
		"* rbps=1Mi wbps=2Mi bps.burst=4Mi/1s":             "rbps=1Mi rbps.burst=4Mi/1s wbps=2Mi wbps.burst=4Mi/1s",
		"* iops=100 wiops.burst=2k/5s riops.burst=3k/010s": "riops=100 riops.burst=3k/10s wiops=100 wiops.burst=2k/5s",
	} {
		q := Parse(map[string]string{keyDB: value}).Named("db")
		if errs := q.Errors(); len(errs) > 0 {
			t.Errorf("%s: %v", value, errs[0])
			continue
		}
		got := ""
		for k := range blkio.NumLimits {
			if en := &q.Limits.Entries[0]; en.Limits[k] != blkio.Unset {
				got += " " + FormatLimit(k, en.Limits[k], en.Burst(k))
			}
		}
		if got = got[1:]; got != want {
			t.Errorf("%s: %s, want %s", value, got, want)
		}
		again := Parse(map[string]string{keyDB: "* " + got}).Named("db")
		if errs := again.Errors(); len(errs) > 0 || again.Limits.Entries[0].bursts != q.Limits.Entries[0].bursts {
			t.Errorf("%s: %v, the canonical form has other bursts", got, errs)
		}
		if !q.Limits.Entries[0].Burst(blkio.Weight).IsZero() {
			t.Error("a weight has a burst")
		}
	}
}

// TestBurstErrors verifies the errors of bursts.
func TestBurstErrors(t *testing.T) {
	checkRates(t, []struct{ word, want string }{
		{"wbps=20Mi wbps.brust=9Mi/1s", `unknown key "wbps.brust" (did you mean "wbps.burst"?)`},
		{"wbps=20Mi wpbs.burst=9Mi/1s", `unknown key "wpbs.burst" (did you mean "wbps.burst"?)`},
		{"wbps=20Mi wbps.burst=", `key "wbps.burst" has no value (write for example wbps.burst=50Mi/60s)`},
		{"iops=20 iops.burst", `key "iops.burst" has no value (write for example iops.burst=2k/60s)`},
		{"wbps=20Mi wbps.burst=100Mi", `burst "100Mi" has no duration (write for example 50Mi/60s)`},
		{"riops=20 riops.burst=100", `burst "100" has no duration (write for example 2k/60s)`},
		{"wbps=20Mi wbps.burst=max/60s", `burst "max/60s" has no rate (write for example 50Mi/60s)`},
		{"wbps=20Mi wbps.burst=/60s", `key "wbps" has no value (write for example wbps=50Mi)`},
		{"wbps=20Mi wbps.burst=100MB/60s", `invalid quantity "100MB" (write 100M or 100Mi)`},
		{"wbps=20Mi wbps.burst=100Mi/", `invalid duration "" (write 1s to 1h, for example 50Mi/60s)`},
		{"wbps=20Mi wbps.burst=100Mi/60", `invalid duration "60" (write 1s to 1h, for example 50Mi/60s)`},
		{"wbps=20Mi wbps.burst=100Mi/0s", `invalid duration "0s" (write 1s to 1h, for example 50Mi/60s)`},
		{"wbps=20Mi wbps.burst=100Mi/2h", `invalid duration "2h" (write 1s to 1h, for example 50Mi/60s)`},
		{"wbps=20Mi wbps.burst=100Mi/1.1s", `invalid duration "1.1s" (write 1s to 1h, for example 50Mi/60s)`},
		{"wbps=20Mi wbps.burst=100Mi/-5s", `invalid duration "-5s" (write 1s to 1h, for example 50Mi/60s)`},
		{"wbps=20Mi wbps.burst=100Mi/18446744073709551616s", `invalid duration "18446744073709551616s" (write 1s to 1h, for example 50Mi/60s)`},
		{"wbps=20Mi wbps.burst=20Mi/60s", `wbps.burst=20Mi/60s is not above the limit 20Mi (write a burst with a larger rate)`},
		{"wbps.burst=20Mi/60s", `a burst of wbps without a limit (write for example wbps=50Mi)`},
		{"wbps=max wbps.burst=20Mi/60s", `a burst of wbps without a limit (write for example wbps=50Mi)`},
		{"rbps=1Mi bps.burst=20Mi/60s", `a burst of wbps without a limit (write for example wbps=50Mi)`},
		{"bps=1Mi bps.burst=20Mi/60s wbps.burst=9Mi/60s", `two bursts of wbps (write one of them)`},
	})
}

// TestBurstOfClaim verifies that a claim has no bursts.
func TestBurstOfClaim(t *testing.T) {
	_, err := ParseClaim("data", "wbps=20Mi wbps.burst=100Mi/60s", 1<<30)
	const want = `a claim has no bursts (write "wbps.burst" into an annotation of the pod)`
	if err == nil || !strings.HasSuffix(err.Error(), ": "+want) {
		t.Errorf("%v, want %s", err, want)
	}
}
