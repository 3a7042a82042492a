package blkio

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKeys(t *testing.T) {
	for k := range numKeys {
		got, ok := ParseKey(k.File(), k.String())
		if !ok || got != k {
			t.Errorf("%s of %s parses as %s", k, k.File(), got)
		}
		absent := Value{Address: Address{Key: k}}.Removal()
		if absent.IsLimit() || absent.LimitsWrites() || (absent.Amount == Unset) != (k == DiskWeight) {
			t.Errorf("%s without a setting is %s", k, absent.Amount)
		}
		if k.IsRate() != (k < NumLimits) || k.Most() == 0 || k.Most() == Max {
			t.Errorf("%s is wrong in the table", k)
		}
	}
	for _, name := range []string{"bps", "default", ""} {
		if k, ok := ParseKey(IOMax, name); ok {
			t.Errorf("%q is %s of io.max", name, k)
		}
	}
	if !Rbps.IsBytes() || !Wbps.IsBytes() || Riops.IsBytes() || !Riops.IsRead() || Wiops.IsRead() || !Weight.IsShare() || Weight.HasDev() || !DiskWeight.HasDev() || Wbps.IsShare() {
		t.Error("a unit or a direction is wrong")
	}
}

func TestAmount(t *testing.T) {
	for text, want := range map[string]Amount{"max": Max, "2": 2, "18446744073709551614": Max - 1} {
		got, err := ParseAmount(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q is %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "1k", "18446744073709551616", "Max"} {
		if got, err := ParseAmount(text); err == nil {
			t.Errorf("%q is %s, want an error", text, got)
		}
	}
}

func TestLimitsWrites(t *testing.T) {
	for _, tt := range []struct {
		key    Key
		amount Amount
		limit  bool
		writes bool
	}{
		{Rbps, 1, true, false},
		{Riops, 1, true, false},
		{Wbps, 1, true, true},
		{Wiops, 1, true, true},
		{Wbps, Max, false, false},
		{Weight, 100, false, false},
		{Weight, 1, true, false},
		{MemoryHigh, 1, true, false},
	} {
		v := Value{Address{Key: tt.key}, tt.amount}
		if v.IsLimit() != tt.limit || v.LimitsWrites() != tt.writes {
			t.Errorf("%s=%s: limit %v, of writes %v", tt.key, tt.amount, v.IsLimit(), v.LimitsWrites())
		}
	}
}

func TestParseValues(t *testing.T) {
	a, b := Dev{8, 0}, Dev{8, 16}
	for _, tt := range []struct {
		file, in string
		want     Values
		lines    string
	}{
		{IOMax, "", Values{}, "[]"},
		{
			IOMax, "8:16 rbps=2 wbps=max riops=max wiops=max\n",
			Values{{Rbps, b}: 2, {Wbps, b}: Max, {Riops, b}: Max, {Wiops, b}: Max},
			"[io.max 8:16 rbps=2 wbps=max riops=max wiops=max]",
		},
		{
			IOMax, "8:16 rbps=2 wbps=3 riops=4 wiops=5\n8:0 rbps=6 wbps=7 riops=8 wiops=9\n",
			Values{{Rbps, b}: 2, {Wbps, b}: 3, {Riops, b}: 4, {Wiops, b}: 5, {Rbps, a}: 6, {Wbps, a}: 7, {Riops, a}: 8, {Wiops, a}: 9},
			"[io.max 8:0 rbps=6 wbps=7 riops=8 wiops=9 io.max 8:16 rbps=2 wbps=3 riops=4 wiops=5]",
		},
		{IOWeight, "default 300\n8:16 200\n", Values{{Key: Weight}: 300, {DiskWeight, b}: 200}, "[io.weight default 300 io.weight 8:16 200]"},
	} {
		got, err := ParseValues(tt.file, tt.in)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s %q: %s", tt.file, tt.in, diff)
		}
		if lines := fmt.Sprint(Lines(got.Sorted())); lines != tt.lines {
			t.Errorf("%s %q: lines %s, want %s", tt.file, tt.in, lines, tt.lines)
		}
	}
	for file, in := range map[string]string{IOMax: "8:16 rbps=0", IOWeight: "8:16 200", "io.latency": "8:16 target=1"} {
		if got, err := ParseValues(file, in); err == nil {
			t.Errorf("%s %q is %v, want an error", file, in, got)
		}
	}
}

func TestLines(t *testing.T) {
	values := []Value{
		{Address{Rbps, Dev{8, 0}}, Max},
		{Address{Wbps, Dev{8, 0}}, 1 << 20},
		{Address{Rbps, Dev{8, 16}}, 7},
		{Address{Key: Weight}, 50},
		{Address{Key: MemoryHigh}, 1 << 30},
	}
	want := []Line{
		{IOMax, "8:0 rbps=max wbps=1048576", Dev{8, 0}},
		{IOMax, "8:16 rbps=7", Dev{8, 16}},
		{IOWeight, "default 50", Dev{}},
		{"memory.high", "1073741824", Dev{}},
	}
	if diff := cmp.Diff(want, Lines(values)); diff != "" {
		t.Error(diff)
	}
}
