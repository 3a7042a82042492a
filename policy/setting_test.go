package policy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

func set(d blkio.Disk, k blkio.Key, amount blkio.Amount) Setting {
	return Setting{Value: blkio.Value{Address: blkio.Address{Key: k, Dev: d.Dev}, Amount: amount}}
}

func weight(amount blkio.Amount) Setting { return set(blkio.Disk{}, blkio.Weight, amount) }

func sourced(s Setting, annotation string) Setting {
	s.Source = from(annotation, 1, "")
	return s
}

func text(s Settings) string { return fmt.Sprint(s.Lines()) }

func TestNewSettings(t *testing.T) {
	got := NewSettings(weight(50), set(sdb, blkio.Wbps, 2), set(sda, blkio.Wiops, 3), set(sdb, blkio.Rbps, 4), set(sdb, blkio.Wbps, 9))
	if want := "[io.max 8:0 wiops=3 io.max 8:16 rbps=4 wbps=2 io.weight default 50]"; text(got) != want {
		t.Errorf("%s, want %s", text(got), want)
	}
	for _, s := range got {
		if found, ok := got.Get(s.Address); !ok || found != s {
			t.Errorf("%+v is %+v, %v", s.Address, found, ok)
		}
	}
	if s, ok := got.Get(blkio.Address{Key: blkio.Rbps, Dev: sda.Dev}); ok {
		t.Errorf("found %+v", s)
	}
	if s, ok := got.Weight(); !ok || s.Amount != 50 {
		t.Errorf("weight %+v, %v", s, ok)
	}
	if s, ok := got.In(blkio.IOMax).Weight(); ok {
		t.Errorf("io.max has the weight %+v", s)
	}
}

// TestWhereShares verifies that a list of which all is kept is not copied: plans keep thousands of them.
func TestWhereShares(t *testing.T) {
	s := NewSettings(weight(50), set(sdb, blkio.Wbps, 2))
	if all := s.Where(func(Setting) bool { return true }); &all[0] != &s[0] {
		t.Errorf("Where copied %s, of which it keeps all", text(s))
	}
	if got, want := text(s.In(blkio.IOMax)), "[io.max 8:16 wbps=2]"; got != want {
		t.Errorf("a part is %s, want %s", got, want)
	}
	if none := s.Where(func(Setting) bool { return false }); none != nil {
		t.Errorf("nothing is %#v, want nil", none)
	}
}

func TestWriteLimits(t *testing.T) {
	for _, tt := range []struct {
		name  string
		in    Settings
		any   bool
		onSDB bool
		lines string
	}{
		{"none", nil, false, false, "[]"},
		{"a weight", Settings{weight(50)}, false, false, "[]"},
		{"reads", Settings{set(sdb, blkio.Rbps, 1), set(sdb, blkio.Riops, 1)}, false, false, "[]"},
		{"no limit", Settings{set(sdb, blkio.Wbps, blkio.Max)}, false, false, "[]"},
		{"bytes", Settings{set(sdb, blkio.Rbps, 1), set(sdb, blkio.Wbps, 7)}, true, true, "[io.max 8:16 wbps=7]"},
		{"operations", Settings{set(sdb, blkio.Wiops, 7)}, true, true, "[io.max 8:16 wiops=7]"},
		{"another disk", Settings{set(sda, blkio.Wiops, 7)}, true, false, "[io.max 8:0 wiops=7]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.in.LimitWrites(); got != tt.any {
				t.Errorf("any: %v", got)
			}
			if got := tt.in.LimitWritesTo([]blkio.Dev{sdb.Dev, sdc.Dev}); got != tt.onSDB {
				t.Errorf("on sdb: %v", got)
			}
			if tt.in.LimitWritesTo(nil) {
				t.Error("on no disk")
			}
			if got := text(tt.in.WriteLimits()); got != tt.lines {
				t.Errorf("%s, want %s", got, tt.lines)
			}
		})
	}
}

func TestRemovals(t *testing.T) {
	in := NewSettings(set(sda, blkio.Wbps, 1), set(sda, blkio.Wiops, 2), weight(5), set(blkio.Disk{}, blkio.MemoryHigh, 6))
	before := text(in)
	if got, want := text(in.Removals()), "[io.max 8:0 wbps=max wiops=max io.weight default 100 memory.high max]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, s := range in.Removals() {
		if s.IsLimit() {
			t.Errorf("%+v is a limit", s)
		}
	}
	if text(in) != before {
		t.Errorf("the settings were changed to %s, want %s", text(in), before)
	}
}

func TestLowest(t *testing.T) {
	a := NewSettings(sourced(set(sda, blkio.Wbps, 5), keyDB), sourced(set(sda, blkio.Rbps, blkio.Max), keyDB), sourced(set(sdb, blkio.Wbps, 5), keyDB))
	b := NewSettings(sourced(set(sda, blkio.Wbps, 5), keyEach), sourced(set(sda, blkio.Rbps, 9), keyEach), sourced(set(sdb, blkio.Wbps, 6), keyEach), sourced(set(sdc, blkio.Wbps, 7), keyEach))
	want := NewSettings(
		sourced(set(sda, blkio.Wbps, 5), keyDB), sourced(set(sda, blkio.Rbps, 9), keyEach),
		sourced(set(sdb, blkio.Wbps, 5), keyDB), sourced(set(sdc, blkio.Wbps, 7), keyEach),
	)
	if diff := cmp.Diff(want, a.Lowest(b)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(a, a.Lowest(nil)); diff != "" {
		t.Error(diff)
	}
	if got, want := text(b.Without(a)), "[io.max 8:32 wbps=7]"; got != want {
		t.Errorf("without: %s, want %s", got, want)
	}
	if got, want := text(a.Join(b)), "[io.max 8:0 rbps=max wbps=5 io.max 8:16 wbps=5 io.max 8:32 wbps=7]"; got != want {
		t.Errorf("join: %s, want %s", got, want)
	}
}

func values(s ...Setting) blkio.Values {
	out := blkio.Values{}
	for _, x := range s {
		out[x.Address] = x.Amount
	}
	return out
}

func TestDiff(t *testing.T) {
	for _, tt := range []struct {
		name           string
		want, recorded Settings
		actual         blkio.Values
		raise, lower   string
	}{
		{"nothing", nil, nil, nil, "[]", "[]"},
		{"in place", Settings{set(sda, blkio.Wbps, 5)}, nil, values(set(sda, blkio.Wbps, 5)), "[]", "[]"},
		{"max of a device without a line", Settings{set(sda, blkio.Wbps, blkio.Max)}, nil, nil, "[]", "[]"},
		{"new", Settings{set(sda, blkio.Wbps, 5)}, nil, nil, "[]", "[io.max 8:0 wbps=5]"},
		{"higher", Settings{set(sda, blkio.Wbps, 5)}, nil, values(set(sda, blkio.Wbps, 4)), "[io.max 8:0 wbps=5]", "[]"},
		{"lower", Settings{set(sda, blkio.Wbps, 5)}, nil, values(set(sda, blkio.Wbps, 6)), "[]", "[io.max 8:0 wbps=5]"},
		{
			"each key by itself",
			NewSettings(set(sda, blkio.Rbps, 5), set(sda, blkio.Wbps, 5), set(sda, blkio.Wiops, 5)), nil,
			values(set(sda, blkio.Rbps, 4), set(sda, blkio.Wbps, 6), set(sda, blkio.Wiops, 5)),
			"[io.max 8:0 rbps=5]", "[io.max 8:0 wbps=5]",
		},
		{
			"not wanted any more",
			Settings{set(sda, blkio.Wbps, 5)},
			NewSettings(set(sda, blkio.Rbps, 7), set(sda, blkio.Wbps, 9)),
			values(set(sda, blkio.Rbps, 7), set(sda, blkio.Wbps, 5)), "[io.max 8:0 rbps=max]", "[]",
		},
		{"recorded and gone", nil, Settings{set(sda, blkio.Rbps, 7)}, nil, "[]", "[]"},
		{"of another program", nil, nil, values(set(sda, blkio.Rbps, 7)), "[]", "[]"},
		{"a weight has no looser value", Settings{weight(500)}, nil, values(weight(100)), "[]", "[io.weight default 500]"},
		{"a weight that is the default", Settings{weight(100)}, nil, nil, "[]", "[]"},
		{"no weight any more", nil, Settings{weight(500)}, values(weight(500)), "[]", "[io.weight default 100]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			raise, lower := Diff(tt.want, tt.recorded, tt.actual)
			if text(raise) != tt.raise || text(lower) != tt.lower {
				t.Errorf("raise %s, lower %s, want %s and %s", text(raise), text(lower), tt.raise, tt.lower)
			}
		})
	}
}

// TestDiffConverges verifies that the result of Diff leads to the desired values, and keeps those of other
// programs. It never lowers a value to below both the old and the desired one, and a second Diff is empty.
func TestDiffConverges(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	random := func() Settings {
		var out []Setting
		for _, d := range []blkio.Disk{sda, sdb} {
			for k := range blkio.NumLimits {
				if n := rnd.IntN(4); n > 0 {
					out = append(out, set(d, k, blkio.Amount(n)))
				}
			}
		}
		if n := rnd.IntN(3); n > 0 {
			out = append(out, weight(blkio.Amount(100*n)))
		}
		return NewSettings(out...)
	}
	for range 2000 {
		want, recorded := random(), random()
		actual := values(random()...)
		before := maps.Clone(actual)
		raise, lower := Diff(want, recorded, actual)
		for _, s := range append(append(Settings{}, raise...), lower...) {
			actual[s.Address] = s.Amount
		}
		for at := range before {
			wanted, isWanted := want.Get(at)
			_, isRecorded := recorded.Get(at)
			now := actual.At(at)
			switch {
			case isWanted && now.Amount != wanted.Amount:
				t.Fatalf("%+v is %v, want %v", at, now.Amount, wanted.Amount)
			case !isWanted && isRecorded && now.IsLimit():
				t.Fatalf("%+v is %v, want none", at, now.Amount)
			case !isWanted && !isRecorded && now.Amount != before[at]:
				t.Fatalf("%+v of another program became %v", at, now.Amount)
			}
		}
		if raise, lower = Diff(want, recorded, actual); len(raise)+len(lower) > 0 {
			t.Fatalf("again %s and %s", text(raise), text(lower))
		}
	}
}
