package blkio

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseIOCostQOS(t *testing.T) {
	in := "8:16 enable=1 ctrl=auto rpct=95.00 rlat=75000 wpct=95.50 wlat=150000 min=50.00 max=150.00\n" +
		"8:32 enable=0 ctrl=user rpct=0.00 rlat=250000 wpct=0.00 wlat=4294967295 min=1.00 max=10000.00 later=x\n"
	got, err := ParseIOCostQOS(in)
	checkError(t, err, "")
	want := map[Dev]CostQOSLine{
		{8, 16}: {Enabled: true, QOS: CostQOS{
			RPct: 9500, WPct: 9550, RLat: 75 * time.Millisecond, WLat: 150 * time.Millisecond, Min: 5000, Max: 15000,
		}},
		{8, 32}: {IsUser: true, QOS: CostQOS{RLat: 250 * time.Millisecond, WLat: maxCostLat, Min: minVrate, Max: maxVrate}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for dev, line := range got {
		if err := line.QOS.Check(); err != nil {
			t.Errorf("%s: %v", dev, err)
		}
	}
	if text := got[Dev{8, 16}].QOS.String(); text != "rpct=95.00 rlat=75000 wpct=95.50 wlat=150000 min=50.00 max=150.00" {
		t.Errorf("written as %q", text)
	}
	for pair, want := range map[string]string{
		"enable=yes": `not 0 or 1`, "ctrl=both": `not auto or user`, "rpct=95.123": `"95.123" has not one or two decimals`,
		"wpct=-1": `"-1" is no percentage`, "min=5.": `"5." has not one or two decimals`, "max=99999999999": `is no percentage`,
		"rlat=4294967296": "value out of range", "wlat=1s": "invalid syntax", "enable": `"enable" is not KEY=VALUE`,
	} {
		_, err := ParseIOCostQOS("8:16 " + pair + "\n")
		if err == nil || !strings.HasPrefix(err.Error(), `parse io.cost.qos, line 1 "8:16 `+pair) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", pair, err, want)
		}
	}
}

func TestCostQOSCheck(t *testing.T) {
	right := CostQOS{RPct: 9500, WPct: 9500, RLat: 5 * time.Millisecond, WLat: 10 * time.Millisecond, Min: 5000, Max: 15000}
	if err := right.Check(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*CostQOS){
		"rpct=100.01 is above 100":                        func(q *CostQOS) { q.RPct = 10001 },
		"wpct=200.00 is above 100":                        func(q *CostQOS) { q.WPct = 20000 },
		"min=0.99 is not within 1.00..10000.00":           func(q *CostQOS) { q.Min = 99 },
		"max=10000.01 is not within 1.00..10000.00":       func(q *CostQOS) { q.Max = 1000001 },
		"min=50.00 is above max=49.99":                    func(q *CostQOS) { q.Max = 4999 },
		"rlat=-1µs is not a number of microseconds":       func(q *CostQOS) { q.RLat = -time.Microsecond },
		"wlat=1.5µs is not a number of microseconds":      func(q *CostQOS) { q.WLat = 1500 },
		"wlat=1h11m34.967296s is not a number of microse": func(q *CostQOS) { q.WLat = maxCostLat + time.Microsecond },
	} {
		q := right
		change(&q)
		if err := q.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestParseIOCostModel(t *testing.T) {
	in := "8:16 ctrl=auto model=linear rbps=2706339840 rseqiops=89698 rrandiops=110036 wbps=1063126016 wseqiops=135560 wrandiops=130734\n" +
		"8:32 ctrl=user model=linear rbps=1 later=2\n"
	got, err := ParseIOCostModel(in)
	checkError(t, err, "")
	want := map[Dev]CostModelLine{
		{8, 16}: {Model: CostModel{
			Rbps: 2706339840, RSeqIOPS: 89698, RRandIOPS: 110036, Wbps: 1063126016, WSeqIOPS: 135560, WRandIOPS: 130734,
		}},
		{8, 32}: {IsUser: true, Model: CostModel{Rbps: 1}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	model := got[Dev{8, 16}].Model
	if text := model.String(); !strings.Contains(in, text) {
		t.Errorf("written as %q", text)
	}
	for _, tt := range []struct{ in, want string }{
		{"8:16 rbps=18446744073709551616", `invalid rbps "18446744073709551616": strconv.ParseUint: parsing "18446744073709551616": value out of range`},
		{"8:16 wseqiops=-1", `invalid wseqiops "-1"`},
		{"8:16 rbps", `"rbps" is not KEY=VALUE`},
		{"8:16 ctrl=", "not auto or user"},
		{"8 ctrl=auto", "8 ctrl=auto"},
	} {
		if _, err := ParseIOCostModel(tt.in); err == nil || !strings.HasPrefix(err.Error(), "parse io.cost.model, line 1 ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %s", tt.in, err, tt.want)
		}
	}
}

func TestCostModelCheck(t *testing.T) {
	right := CostModel{Rbps: 4096, RSeqIOPS: 1, RRandIOPS: 1, Wbps: 4096, WSeqIOPS: 1, WRandIOPS: 1}
	if err := right.Check(); err != nil {
		t.Error(err)
	}
	for i, name := range costModelKeys {
		wrong := right
		if wrong.Field(name) != wrong.fields()[i] {
			t.Errorf("%s is another field", name)
		}
		*wrong.Field(name) = 0
		if err := wrong.Check(); err == nil || !strings.HasPrefix(err.Error(), name+"=0 is too small") {
			t.Errorf("%s: %v", name, err)
		}
		*wrong.Field(name) = math.MaxUint64
		if err := wrong.Check(); err == nil || !strings.HasPrefix(err.Error(), name+"=18446744073709551615 is too large") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if right.Field("bps") != nil {
		t.Error("bps is a field")
	}
}

func TestPercent(t *testing.T) {
	for text, want := range map[string]Percent{"95": 9500, "95.5": 9550, "0.01": 1, "10000.00": maxVrate} {
		if got, err := ParsePercent(text); err != nil || got != want {
			t.Errorf("%s is %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ".", "1.", "1.234", "-1", "1e2", "1,5", ".5 ", "99999999999"} {
		if got, err := ParsePercent(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}

func TestParseCostVrates(t *testing.T) {
	for text, want := range map[string]Percent{
		"8:16 rbytes=1 wbytes=0 rios=1 wios=0 dbytes=0 dios=0 cost.vrate=97.25 cost.usage=73\n": 9725,
		"8:16 cost.vrate=100.00\n":          10000,
		"8:16 rbytes=1\n":                   0,
		"7:1 8:16 rbytes=1 cost.vrate=97\n": 9700, // Linux 5.13 to 6.0 print the number of a device without I/O, and no newline after it
		"(unknown) 8:16 cost.vrate=1.00\n":  100,
		"8:16 (unknown) cost.vrate=50.00\n": 0,
	} {
		if got, err := ParseIOStat(text); err != nil || got[Dev{Major: 8, Minor: 16}].CostVrate != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"8:16 cost.vrate=\n", "8:16 cost.vrate=fast\n", "sda cost.vrate=100.00\n", "cost.vrate=1\n"} {
		if got, err := ParseIOStat("\n" + text); err == nil || !strings.HasPrefix(err.Error(), "parse io.stat, line 2 ") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestCostPeriod(t *testing.T) {
	for _, tt := range []struct {
		qos  CostQOS
		want time.Duration
	}{
		{CostQOS{}, time.Millisecond},
		{CostQOS{RPct: 9500, RLat: 5 * time.Millisecond}, 10 * time.Millisecond},
		{CostQOS{RPct: 9000, RLat: 5 * time.Millisecond, WPct: 9000, WLat: 5 * time.Millisecond}, 10 * time.Millisecond},
		{CostQOS{RPct: 5000, RLat: 25 * time.Millisecond, WPct: 9500, WLat: time.Millisecond}, 250 * time.Millisecond}, // the kernel's for SSDs
		{CostQOS{RPct: 5000, RLat: 25 * time.Millisecond, WLat: 26 * time.Millisecond}, 52 * time.Millisecond},
		{CostQOS{WPct: 2500, WLat: 250 * time.Millisecond}, time.Second},
	} {
		if got := tt.qos.Period(); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.qos, got, tt.want)
		}
	}
}

// TestKernelDefaults has the values that the kernel chooses for the disks that it distinguishes: autop in
// block/blk-iocost.c. Written back, they are the same.
func TestKernelDefaults(t *testing.T) {
	for name, tt := range map[string]struct {
		model, targets string
		period         time.Duration
	}{
		"hard disk": {
			"rbps=174019176 rseqiops=41708 rrandiops=370 wbps=178075866 wseqiops=42705 wrandiops=378",
			"rpct=0.00 rlat=250000 wpct=0.00 wlat=250000 min=1.00 max=10000.00", 500 * time.Millisecond,
		},
		"SSD with a queue depth of 1": {
			"rbps=245855193 rseqiops=61575 rrandiops=6946 wbps=141365009 wseqiops=33716 wrandiops=26796",
			"rpct=0.00 rlat=25000 wpct=0.00 wlat=25000 min=1.00 max=10000.00", 50 * time.Millisecond,
		},
		"SSD": {
			"rbps=488636629 rseqiops=8932 rrandiops=8518 wbps=427891549 wseqiops=28755 wrandiops=21940",
			"rpct=0.00 rlat=25000 wpct=0.00 wlat=25000 min=1.00 max=10000.00", 50 * time.Millisecond,
		},
		"fast SSD": {
			"rbps=3102524156 rseqiops=724816 rrandiops=778122 wbps=1742780862 wseqiops=425702 wrandiops=443193",
			"rpct=0.00 rlat=5000 wpct=0.00 wlat=5000 min=1.00 max=10000.00", 10 * time.Millisecond,
		},
	} {
		disk := Dev{259, 0}
		models, err := ParseIOCostModel("259:0 ctrl=auto model=linear " + tt.model + "\n")
		checkError(t, err, "")
		model := models[disk]
		if err := model.Model.Check(); err != nil || model.IsUser || model.Model.String() != tt.model {
			t.Errorf("%s: %+v, %v", name, model, err)
		}
		lines, err := ParseIOCostQOS("259:0 enable=1 ctrl=auto " + tt.targets + "\n")
		checkError(t, err, "")
		qos := lines[disk]
		if err := qos.QOS.Check(); err != nil || qos.IsUser || !qos.Enabled || qos.QOS.String() != tt.targets {
			t.Errorf("%s: %+v, %v", name, qos, err)
		}
		if got := qos.QOS.Period(); got != tt.period {
			t.Errorf("%s: a period of %v, want %v", name, got, tt.period)
		}
	}
}
