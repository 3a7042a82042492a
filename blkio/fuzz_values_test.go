package blkio

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func FuzzParseIOMax(f *testing.F) {
	f.Add("8:16 rbps=2097152 wbps=max riops=max wiops=120\n253:0 rbps=max wbps=max riops=7 wiops=max\n")
	f.Add("(unknown) rbps=max wbps=1000 riops=max wiops=max\n8:0 rbps=4 dbps=5\n")
	f.Fuzz(func(t *testing.T, in string) {
		got, err := ParseIOMax(in)
		if err != nil {
			return
		}
		for dev, limits := range got {
			for k, r := range limits {
				if r == Unset {
					t.Errorf("%s %s is unset", dev, Key(k))
				}
			}
		}
		again, err := ParseIOMax(FormatIOMax(got))
		sameAgain(t, got, again, err)
	})
}

func FuzzParseIOStat(f *testing.F) {
	f.Add("8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n")
	f.Add("7:1 7:0 8:16 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6 cost.usage=7\n(unknown) rbytes=1\n")
	f.Add("8:16 rbytes=1 wbytes=0 rios=1 wios=0 dbytes=0 dios=0 cost.vrate=97.25 cost.usage=73\n8:32 cost.vrate=100.00\n")
	f.Fuzz(func(t *testing.T, in string) {
		got, err := ParseIOStat(in)
		if err != nil {
			return
		}
		again, err := ParseIOStat(formatIOStat(got))
		sameAgain(t, got, again, err)
	})
}

func FuzzParseIOWeight(f *testing.F) {
	f.Add("default 100\n8:16 200\n")
	f.Fuzz(func(t *testing.T, in string) {
		got, err := ParseIOWeight(in)
		if err != nil {
			return
		}
		again, err := ParseIOWeight(got.String())
		sameAgain(t, got, again, err)
	})
}

func FuzzParseIOCostQOS(f *testing.F) {
	f.Add("8:16 enable=1 ctrl=auto rpct=95.00 rlat=75000 wpct=95.00 wlat=150000 min=50.00 max=150.00\n")
	f.Fuzz(func(t *testing.T, in string) {
		lines, err := ParseIOCostQOS(in)
		if err != nil {
			return
		}
		for dev, line := range lines {
			again, err := ParseIOCostQOS(dev.String() + " " + line.QOS.String())
			sameAgain(t, line.QOS, again[dev].QOS, err)
		}
	})
}

func FuzzParseIOCostModel(f *testing.F) {
	f.Add("8:16 ctrl=auto model=linear rbps=2706339840 rseqiops=89698 rrandiops=110036 wbps=1063126016 wseqiops=135560 wrandiops=130734\n")
	f.Fuzz(func(t *testing.T, in string) {
		lines, err := ParseIOCostModel(in)
		if err != nil {
			return
		}
		for dev, line := range lines {
			again, err := ParseIOCostModel(dev.String() + " " + line.Model.String())
			sameAgain(t, line.Model, again[dev].Model, err)
		}
	})
}

func FuzzPercent(f *testing.F) {
	f.Add("95.00", uint32(9500))
	f.Add("1.", uint32(1<<32-1))
	f.Add("0.5", uint32(5))
	f.Fuzz(func(t *testing.T, in string, number uint32) {
		again, err := ParsePercent(Percent(number).String())
		sameAgain(t, Percent(number), again, err)
		if got, err := ParsePercent(in); err == nil {
			again, err := ParsePercent(got.String())
			sameAgain(t, got, again, err)
		}
	})
}

func FuzzParseAmount(f *testing.F) {
	f.Add("max", uint64(2))
	f.Add("18446744073709551614", uint64(1<<64-1))
	f.Fuzz(func(t *testing.T, in string, number uint64) {
		if number != 0 { // no value of the kernel
			again, err := ParseAmount(Amount(number).String())
			sameAgain(t, Amount(number), again, err)
		}
		if got, err := ParseAmount(in); err == nil {
			again, err := ParseAmount(got.String())
			sameAgain(t, got, again, err)
		}
	})
}

func sameAgain(t *testing.T, got, again any, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("what was formatted does not parse: %v", err)
	}
	if diff := cmp.Diff(got, again, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// formatIOStat is the inverse of ParseIOStat, sorted by device number.
func formatIOStat(m map[Dev]Stat) string {
	var b strings.Builder
	for _, dev := range slices.SortedFunc(maps.Keys(m), Dev.Compare) {
		fmt.Fprintf(&b, "%s %s\n", dev, m[dev])
	}
	return b.String()
}
