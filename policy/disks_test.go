package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

const fullDisks = fileHead + `
disks:
- match: {names: ["nvme*", "vd?"], models: ["A/B *"], rotational: false}
  weights: on
  model: {rbps: 3Gi, rseqiops: 400k, rrandiops: 350k, wbps: 2Gi, wseqiops: 300k, wrandiops: 250k}
  qos: {rpct: 95, rlat: 5ms, wpct: "99.5", wlat: 10ms, min: 50, max: 150}
- match: {rotational: true}
  weights: off
  follow: off
- qos: {min: 95, max: 95}
reserve: {system: 30%}
`

func TestParseDisks(t *testing.T) {
	no, yes := false, true
	want := Default()
	want.Reserve = 3000
	want.Disks = []DiskRule{
		{
			Match: DiskMatch{Names: []string{"nvme*", "vd?"}, Models: []string{"A/B *"}, Rotational: &no}, Weights: WeightsOn,
			Model: &blkio.CostModel{
				Rbps: 3 << 30, RSeqIOPS: 400_000, RRandIOPS: 350_000, Wbps: 2 << 30, WSeqIOPS: 300_000, WRandIOPS: 250_000,
			},
			QOS: &blkio.CostQOS{
				RPct: 9500, RLat: 5 * time.Millisecond, WPct: 9950, WLat: 10 * time.Millisecond, Min: 5000, Max: 15000,
			},
		},
		{Match: DiskMatch{Rotational: &yes}, Weights: WeightsOff, Follow: FollowOff},
		{Weights: WeightsAuto, QOS: &blkio.CostQOS{Min: 9500, Max: 9500}},
	}
	got, err := ParseFile([]byte(fullDisks))
	if diff := cmp.Diff(want, got, byClasses()); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}

func TestDiskRule(t *testing.T) {
	p, err := ParseFile([]byte(fullDisks))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		disk Disk
		want int
	}{
		{Disk{Name: "nvme0n1", Model: "A/B 1"}, 0},
		{Disk{Name: "vda", Model: "A/B "}, 0},
		{Disk{Name: "vda", Model: "A_B 1"}, 2},
		{Disk{Name: "sda", Model: "A/B 1", Rotational: true}, 1},
		{Disk{Name: "sda"}, 2},
	} {
		if diff := cmp.Diff(p.Disks[tt.want], p.DiskRule(tt.disk)); diff != "" {
			t.Errorf("%+v: -want +got:\n%s", tt.disk, diff)
		}
	}
	if got := Default().DiskRule(Disk{Name: "vda"}); got.Weights != WeightsAuto || got.Model != nil || got.QOS != nil {
		t.Errorf("without rules: %+v", got)
	}
}

func TestParseDisksErrors(t *testing.T) {
	model := func(change string) string {
		const all = "rbps: 1Gi, rseqiops: 1k, rrandiops: 1k, wbps: 1Gi, wseqiops: 1k, wrandiops: 1k"
		name, _, _ := strings.Cut(change, ":")
		var kept []string
		for pair := range strings.SplitSeq(all, ", ") {
			if !strings.HasPrefix(pair, name+":") {
				kept = append(kept, pair)
			}
		}
		return "model: {" + strings.Join(append(kept, change), ", ") + "}"
	}
	for _, tt := range []struct{ disk, want string }{
		{"weights: always", `disks[0].weights: Unsupported value: "always": supported values: "auto", "on", "off"`},
		{"follow: on", `disks[0].follow: Unsupported value: "on": supported values: "auto", "off"`},
		{"match: {names: ['[']}", `disks[0].match.names[0]: Invalid value: "[": invalid pattern`},
		{"match: {models: [a, 'a[']}", `disks[0].match.models[1]: Invalid value: "a[": invalid pattern`},
		{"match: {name: [a]}", `disks[0].match.name: Forbidden: unknown field (did you mean "disks[0].match.names"?)`},
		{"modle: {}", `disks[0].modle: Forbidden: unknown field (did you mean "disks[0].model"?)`},
		{"model: {}", `disks[0].model.wrandiops: Required value: a model has all six values`},
		{model("rbps: 0"), `disks[0].model.rbps: Invalid value: "0": must be at least 4Ki`},
		{model("rbps: max"), `disks[0].model.rbps: Invalid value: "max": a limit is required`},
		{model("wseqiops: 0"), `disks[0].model.wseqiops: Invalid value: "0": must be at least 1`},
		{model("wbps: 20000000000000000000"), `disks[0].model.wbps: Invalid value: "20000000000000000000"`},
		{model("rrandiops: 1.5"), `disks[0].model.rrandiops: Invalid value: "1.5"`},
		{"qos: {rpct: 101, rlat: 1ms}", `disks[0].qos: Invalid value: "rpct=101.00 rlat=1000 wpct=0.00 wlat=0 min=100.00 max=100.00": rpct=101.00 is above 100`},
		{"qos: {rpct: 95%, rlat: 1ms}", `disks[0].qos.rpct: Invalid value: "95%": must be a percentage with at most two decimals, without %`},
		{"qos: {rpct: 95}", `disks[0].qos.rlat: Required value: a percentile needs its latency`},
		{"qos: {wpct: 95, wlat: 5}", `disks[0].qos.wlat: Invalid value: "5": must be a duration, such as 5ms`},
		{"qos: {wpct: 95, wlat: 2h}", `wlat=2h0m0s is not a number of microseconds within 32 bits`},
		{"qos: {wpct: 95, wlat: 1500ns}", `wlat=1.5µs is not a number of microseconds`},
		{"qos: {min: 150, max: 50}", `min=150.00 is above max=50.00`},
		{"qos: {max: 20000}", `max=20000.00 is not within 1.00..10000.00`},
	} {
		_, err := ParseFile([]byte(fileHead + "disks:\n- " + tt.disk + "\n"))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s:\n got %v\nwant %s", tt.disk, err, tt.want)
		}
	}
	if _, err := ParseFile([]byte(fileHead + "disks: [{}, {weihgts: on}]")); err == nil || !strings.Contains(err.Error(), `disks[1].weihgts: Forbidden: unknown field (did you mean "disks[1].weights"?)`) {
		t.Errorf("in the second element: %v", err)
	}
}

func TestParseReserve(t *testing.T) {
	for text, want := range map[string]blkio.Percent{"0%": 0, "30%": 3000, "12.5%": 1250, "90%": 9000} {
		if got, err := parseShare(text); err != nil || got != want {
			t.Errorf("%s is %s, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"30": "must be a percentage, such as 30%", "": "must be a percentage", "91%": "must be between 0% and 90%", "x%": "is no percentage", "-1%": "is no percentage",
	} {
		_, err := ParseFile([]byte(fileHead + "reserve: {system: '" + text + "'}"))
		if err == nil || !strings.Contains(err.Error(), `reserve.system: Invalid value: "`+text+`": `) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
