package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

var (
	slowModel = blkio.CostModel{Rbps: 62914560, RSeqIOPS: 1500, RRandIOPS: 1500, Wbps: 4096, WSeqIOPS: 1, WRandIOPS: 1}
	slowQOS   = blkio.CostQOS{RPct: 5000, RLat: 1333 * time.Microsecond, WPct: 9950, WLat: 999 * time.Microsecond, Min: 9800, Max: 16600}
)

func TestFormatRule(t *testing.T) {
	got := FormatRule(Disk{Name: "vdb"}, slowModel, slowQOS)
	want := `disks:
- match: {names: ["vdb"]}
  model: {rbps: 62914560, rseqiops: 1500, rrandiops: 1500, wbps: 4096, wseqiops: 1, wrandiops: 1}
  qos: {rpct: 50, rlat: 1.333ms, wpct: 99.50, wlat: 999us, min: 98, max: 166}
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestFormatsWhatItParses verifies that a policy file with a formatted rule has its model and its targets, and matches its disk only.
func TestFormatsWhatItParses(t *testing.T) {
	exact := blkio.CostQOS{Min: 10000, Max: 10000}
	for _, d := range []Disk{{Name: "cciss!c0d0"}, {Name: "sda", Model: `A/B *[x]? \ "Ä" ` + "\x1b\u202e: #"}} {
		for _, qos := range []blkio.CostQOS{slowQOS, exact} {
			text := FormatRule(d, slowModel, qos)
			p, err := ParseFile([]byte(fileHead + "\n" + text))
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			r := p.Disks[0]
			if len(p.Disks) != 1 || *r.Model != slowModel || *r.QOS != qos || r.Weights != WeightsAuto || !r.Match.selects(d) {
				t.Errorf("%+v of %s", r, text)
			}
			if other := (Disk{Name: d.Name + "x", Model: d.Model + "x"}); r.Match.selects(other) {
				t.Errorf("%+v matches %+v", r.Match, other)
			}
		}
	}
}

func FuzzFormatRule(f *testing.F) {
	f.Add("sda", "A/B [1]")
	f.Fuzz(func(t *testing.T, name, model string) {
		text := FormatRule(Disk{Name: name, Model: model}, slowModel, slowQOS)
		p, err := ParseFile([]byte(fileHead + "\n" + text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if !p.Disks[0].Match.selects(Disk{Name: name, Model: model}) {
			t.Errorf("%+v does not match", p.Disks[0].Match)
		}
	})
}
