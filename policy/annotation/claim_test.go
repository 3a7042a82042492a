package annotation

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestParseClaim verifies that the annotation of a claim has limits without a target, with the words of the grammar.
func TestParseClaim(t *testing.T) {
	for text, want := range map[string]blkio.Limits{
		"wbps=50Mi":                          {blkio.Wbps: 50 << 20},
		"bps=50Mi iops=9":                    {50 << 20, 50 << 20, 9, 9},
		" rbps=max\twiops=2k ":               {blkio.Rbps: blkio.Max, blkio.Wiops: 2000},
		"# the database\nwbps=1Mi;\nriops=9": {blkio.Wbps: 1 << 20, blkio.Riops: 9},
	} {
		l, err := ParseClaim("data", text, 1<<30)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		e := l.Entries[0]
		if d := cmp.Diff(want, e.Limits); d != "" || len(l.Entries) != 1 || l.From != (Origin{Claim: "data"}) || e.Number != 0 || e.Target.Kind != TargetClaim || e.Target.Name() != "claim data" {
			t.Errorf("%q: %+v\n%s", text, l, d)
		}
	}
	for text, want := range map[string]string{
		"":                      `the value is empty (write for example "wbps=50Mi", or remove the annotation)`,
		" ;\n# none":            `the value is empty (write for example "wbps=50Mi", or remove the annotation)`,
		"wpbs=1Mi":              `"wpbs=1Mi": unknown key "wpbs" (did you mean "wbps"?)`,
		"wbps":                  `"wbps": key "wbps" has no value (write for example wbps=50Mi)`,
		"wbps=1Mi wbps=2Mi":     `"wbps=1Mi wbps=2Mi": duplicate key "wbps" (write it once)`,
		"wbps=1Mi; wbps=2Mi":    `"wbps=1Mi; wbps=2Mi": duplicate key "wbps" (write it once)`,
		"wbps=0":                `"wbps=0": wbps=0 stops all I/O (write max for no limit)`,
		"bps=1Mi; rbps=2Mi":     `"bps=1Mi; rbps=2Mi": the keys "bps" and "rbps" set the same limit (bps and iops set both directions; write one of the two keys)`,
		"iops=":                 `"iops=": key "iops" has no value (write for example iops=2k)`,
		"* wbps=1Mi":            `"* wbps=1Mi": limits with targets are those of a pod, and have no effect on a claim (write for example "wbps=50Mi")`,
		"/data wbps=1Mi; @wal":  `"/data wbps=1Mi; @wal": limits with targets are those of a pod, and have no effect on a claim (write for example "wbps=50Mi")`,
		"wbps=1Mi; /data rbps=": `"wbps=1Mi; /data rbps=": "/data" is a target (the limits of a claim have none; write for example "wbps=50Mi")`,
		"/a wbps=1Mi; rbps=1":   `"/a wbps=1Mi; rbps=1": "/a" is a target (the limits of a claim have none; write for example "wbps=50Mi")`,
		`"/a b" wbps=1;wbps=2`:  `"\"/a b\" wbps=1;wbps=2": "\"/a" is a target (the limits of a claim have none; write for example "wbps=50Mi")`,
		"wbps=1Mi\n@a rbps=":    `"wbps=1Mi\n@a rbps=": "@a" is a target (the limits of a claim have none; write for example "wbps=50Mi")`,
		"wbps=1\x00":            `"wbps=1\x00": control character in the entry (remove it)`,
		"wbps=\xff":             `"wbps=\xff": invalid UTF-8 (write the annotation again)`,

		strings.Repeat(";", MaxValue+1): `the value is longer than 64 KiB (write for example "wbps=50Mi")`,
	} {
		l, err := ParseClaim("data", text, 1<<30)
		if err == nil || l != nil || err.Error() != `nri-blkio: "claim data": `+want || err.Kind() != Invalid {
			t.Errorf("%.100q: %+v\n got %v\nwant %s", text, l, err, want)
		}
	}
}

// TestParseRates verifies that of two rates of a key the one with the prefix counts, and that an error names the
// parameter.
func TestParseRates(t *testing.T) {
	for name, tt := range map[string]struct {
		rates map[string]string
		want  blkio.Limits // zero for no list
		err   string
	}{
		"none":           {},
		"own first":      {rates: map[string]string{OwnPrefix + "wbps": " 1Mi ", "wbps": "2048", "riops": "100"}, want: blkio.Limits{blkio.Wbps: 1 << 20, blkio.Riops: 100}},
		"pairs":          {rates: map[string]string{OwnPrefix + "bps": "1Mi", OwnPrefix + "iops": "9", "wbps": "2048"}, want: blkio.Limits{1 << 20, 1 << 20, 9, 9}},
		"of a driver":    {rates: map[string]string{"iops": "3000", "bps": "x"}},
		"repeated":       {rates: map[string]string{OwnPrefix + "bps": "1Mi", OwnPrefix + "wbps": "2Mi"}, err: `"blkio.noderesource.dev/bps=1Mi": the keys "wbps" and "bps" set the same limit (bps and iops set both directions; write one of the two keys)`},
		"zero":           {rates: map[string]string{OwnPrefix + "wbps": "0"}, err: `"blkio.noderesource.dev/wbps=0": wbps=0 stops all I/O (write max for no limit)`},
		"second invalid": {rates: map[string]string{OwnPrefix + "wbps": "1Mi", "wbps": "2MB"}, err: `"wbps=2MB": invalid quantity "2MB" (write 2M or 2Mi)`},
	} {
		l, err := ParseRates("data", "fast", tt.rates, 1<<30)
		switch {
		case tt.err != "":
			if err == nil || l != nil || err.Error() != `nri-blkio: "claim data, class fast": `+tt.err {
				t.Errorf("%s: %+v, %v", name, l, err)
			}
		case err != nil, (l == nil) != tt.want.IsZero():
			t.Errorf("%s: %+v, %v", name, l, err)
		case l != nil:
			if d := cmp.Diff(tt.want, l.Entries[0].Limits); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		}
	}
}

// TestWithout verifies that a list keeps the keys that another one does not have.
func TestWithout(t *testing.T) {
	parse := func(text string) *List {
		l, err := ParseClaim("data", text, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	both, wbps := parse("wbps=1Mi rbps=2Mi"), parse("wbps=9Mi")
	if got := both.Without(wbps); got.Entries[0].Limits != (blkio.Limits{blkio.Rbps: 2 << 20}) {
		t.Errorf("%+v", got)
	}
	if got := wbps.Without(both); got != nil {
		t.Errorf("%+v", got)
	}
	if both.Without(nil) != both || (*List)(nil).Without(both) != nil || both.Entries[0].Limits[blkio.Wbps] != 1<<20 {
		t.Error("a list was changed")
	}
}

// FuzzClaim verifies that any text of a claim is limits of the claim, or an error of one printable line.
func FuzzClaim(f *testing.F) {
	for _, text := range []string{"wbps=50Mi rbps=max", "bps=5Mi iops=9", "bps=5Mi; wbps=1", "* wbps=1", "# x\nwiops=2k;", "\x00", `"/a b" wbps=1`, "wbps=1e36", "riops=1+3/Gi..9 wbps=7Ei/Gi"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseClaim("data", text, math.MaxInt64)
		if err != nil {
			checkLine(t, err.Error())
			return
		}
		if len(l.Entries) != 1 || l.Entries[0].Limits.IsZero() || l.Entries[0].Weight != 0 || l.Entries[0].Target.Claim != "data" {
			t.Errorf("%q: %+v", text, l)
		}
		for _, rate := range l.Entries[0].Limits {
			if rate == 0 {
				continue // unset
			}
			if rate < 1 {
				t.Errorf("%q: %v", text, rate)
			}
		}
	})
}
