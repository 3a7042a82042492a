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

func TestFormatDisks(t *testing.T) {
	got := FormatDisks([]DiskRule{RuleFor(Disk{Name: "vdb"}, slowModel, slowQOS)})
	want := `disks:
- match: {names: ["vdb"]}
  model: {rbps: 62914560, rseqiops: 1500, rrandiops: 1500, wbps: 4096, wseqiops: 1, wrandiops: 1}
  qos: {rpct: 50, rlat: 1.333ms, wpct: 99.50, wlat: 999us, min: 98, max: 166}
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestFormatsWhatItParses verifies that a policy file with formatted rules has these rules, and RuleFor matches
// its disk only.
func TestFormatsWhatItParses(t *testing.T) {
	yes := true
	rules := []DiskRule{
		RuleFor(Disk{Name: "cciss!c0d0"}, slowModel, slowQOS),
		RuleFor(Disk{Name: "sda", Model: `A/B *[x]? \ "Ä" ` + "\x1b\u202e: #"}, slowModel, blkio.CostQOS{Min: 10000, Max: 10000}),
		{Weights: WeightsOff, Match: DiskMatch{Names: []string{"nvme*", "vd?"}, Models: []string{"*"}, Rotational: &yes}},
		{Weights: WeightsOn},
	}
	p, err := ParseFile([]byte(fileHead + "\n" + FormatDisks(rules)))
	if err != nil {
		t.Fatalf("%v\n%s", err, FormatDisks(rules))
	}
	if diff := cmp.Diff(rules, p.Disks); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, d := range []Disk{{Name: "cciss!c0d0"}, {Model: `A/B *[x]? \ "Ä" ` + "\x1b\u202e: #"}} {
		r := RuleFor(d, slowModel, slowQOS)
		if !r.Match.selects(d) {
			t.Errorf("%+v does not match %+v", r.Match, d)
		}
		d.Name, d.Model = d.Name+"x", d.Model+"x"
		if r.Match.selects(d) {
			t.Errorf("%+v matches %+v", r.Match, d)
		}
	}
}

func FuzzFormatDisks(f *testing.F) {
	f.Add("sda", "A/B [1]")
	f.Fuzz(func(t *testing.T, name, model string) {
		rules := []DiskRule{RuleFor(Disk{Name: name, Model: model}, slowModel, slowQOS)}
		p, err := ParseFile([]byte(fileHead + "\n" + FormatDisks(rules)))
		if err != nil {
			t.Fatalf("%v\n%s", err, FormatDisks(rules))
		}
		if !p.Disks[0].Match.selects(Disk{Name: name, Model: model}) {
			t.Errorf("%+v does not match", p.Disks[0].Match)
		}
	})
}
