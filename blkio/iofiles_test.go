package blkio

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseIOMax(t *testing.T) {
	tests := map[string]struct {
		in   string
		want map[Dev]Limits
		err  string
	}{
		"empty":       {in: ""},
		"one":         {in: "8:16 rbps=2097152 wbps=max riops=max wiops=120\n", want: map[Dev]Limits{{8, 16}: {2097152, Max, Max, 120}}},
		"no newline":  {in: "8:16 rbps=max wbps=2 riops=max wiops=max", want: map[Dev]Limits{{8, 16}: {Max, 2, Max, Max}}},
		"big minor":   {in: "259:1048575 rbps=max wbps=max riops=7 wiops=max\n", want: map[Dev]Limits{{259, 1048575}: {Max, Max, 7, Max}}},
		"any order":   {in: "253:0 wiops=9 rbps=max riops=max wbps=max\n8:0 rbps=4 wbps=max riops=max wiops=max\n", want: map[Dev]Limits{{253, 0}: {Max, Max, Max, 9}, {8, 0}: {4, Max, Max, Max}}},
		"unknown":     {in: "(unknown) rbps=max wbps=1000 riops=max wiops=max\n8:0 rbps=4 wbps=max riops=max wiops=max\n", want: map[Dev]Limits{{8, 0}: {4, Max, Max, Max}}},
		"later key":   {in: "8:0 rbps=4 wbps=max riops=max wiops=max dbps=nonsense\n", want: map[Dev]Limits{{8, 0}: {4, Max, Max, Max}}},
		"key missing": {in: "8:0 rbps=4\n", want: map[Dev]Limits{{8, 0}: {4, Max, Max, Max}}},
		"no device":   {in: "rbps=4\n", err: `parse io.max, line 1 "rbps=4": parse device number "rbps=4": not MAJ:MIN`},
		"no pair":     {in: "8:0 rbps=max\n8:1 rbps\n", err: `parse io.max, line 2 "8:1 rbps": "rbps" is not KEY=VALUE`},
		"suffix":      {in: "8:0 wbps=10M\n", err: `parse io.max, line 1 "8:0 wbps=10M": invalid wbps "10M": strconv.ParseUint: parsing "10M": invalid syntax`},
		"zero":        {in: "8:0 wbps=0\n", err: `parse io.max, line 1 "8:0 wbps=0": invalid wbps "0": "0" is no amount`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseIOMax(tt.in)
			checkError(t, err, tt.err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseIOStat(t *testing.T) {
	stat := Stat{Rbytes: 1459200, Wbytes: 314773504, Rios: 192, Wios: 353}
	used := stat
	used.CostUsage, used.CostVrate = 15, 10000
	waited := stat
	waited.CostUsage, waited.CostWait, waited.HasCostWait = 15, 7, true
	tests := map[string]struct {
		in   string
		want map[Dev]Stat
		err  string
	}{
		"empty":       {in: ""},
		"one":         {in: "8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n", want: map[Dev]Stat{{8, 16}: stat}},
		"discards":    {in: "8:16 rbytes=0 wbytes=0 rios=0 wios=0 dbytes=4096 dios=1\n", want: map[Dev]Stat{{8, 16}: {Dbytes: 4096, Dios: 1}}},
		"cost":        {in: "8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0 cost.vrate=100.00 cost.usage=15\n", want: map[Dev]Stat{{8, 16}: used}},
		"cost wait":   {in: "8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0 cost.usage=15 cost.wait=7 cost.indebt=0 cost.indelay=0\n", want: map[Dev]Stat{{8, 16}: waited}},
		"no I/O":      {in: "7:0 \n8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n", want: map[Dev]Stat{{8, 16}: stat}},
		"run on":      {in: "7:1 7:0 8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n", want: map[Dev]Stat{{8, 16}: stat}},
		"unknown":     {in: "(unknown) rbytes=1 wbytes=1 rios=1 wios=1 dbytes=0 dios=0\n8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n", want: map[Dev]Stat{{8, 16}: stat}},
		"all":         {in: "8:0 rbytes=18446744073709551615\n", want: map[Dev]Stat{{8, 0}: {Rbytes: 1<<64 - 1}}},
		"bad counter": {in: "8:0 rbytes=-1\n", err: `parse io.stat, line 1 "8:0 rbytes=-1": rbytes: strconv.ParseUint: parsing "-1": invalid syntax`},
		"no device":   {in: "rbytes=1\n", err: `parse io.stat, line 1 "rbytes=1": counters without a device`},
		"word":        {in: "8:0 rbytes=1 what\n", err: `parse io.stat, line 1 "8:0 rbytes=1 what": "what" after the counters`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseIOStat(tt.in)
			checkError(t, err, tt.err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseIOWeight(t *testing.T) {
	tests := map[string]struct {
		in   string
		want Weights
		err  string
	}{
		"default":   {in: "default 100\n", want: Weights{Default: 100}},
		"device":    {in: "default 100\n8:16 200\n253:0 10000\n", want: Weights{Default: 100, Devices: map[Dev]uint32{{8, 16}: 200, {253, 0}: 10000}}},
		"empty":     {in: "", err: `parse io.weight: missing default`},
		"too large": {in: "default 10001\n", err: `parse io.weight, line 1 "default 10001": weight 10001 is not within 1..10000`},
		"bad":       {in: "default 100\n8:16 x\n", err: `parse io.weight, line 2 "8:16 x": strconv.ParseUint: parsing "x": invalid syntax`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseIOWeight(tt.in)
			checkError(t, err, tt.err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFormatFillsUnset(t *testing.T) {
	got := FormatIOMax(map[Dev]Limits{{8, 32}: {Wbps: 5}, {8, 16}: {Rbps: 2, Riops: Max}})
	want := "8:16 rbps=2 wbps=max riops=max wiops=max\n8:32 rbps=max wbps=5 riops=max wiops=max\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("error\n  got  %s\n  want %s", got, want)
	}
}
