package record

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// fixture returns the bytes of a record that version 1 has written.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "v1", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func lines(limits map[blkio.Dev]blkio.Limits) []string {
	return strings.Split(strings.TrimSpace(blkio.FormatIOMax(limits)), "\n")
}

// TestParseV1: a node has records of the version that ran before an update.
func TestParseV1(t *testing.T) {
	db := []string{
		"254:0 rbps=max wbps=10485760 riops=500 wiops=max",
		"254:16 rbps=max wbps=52428800 riops=500 wiops=2000",
	}
	for _, tt := range []struct {
		name, about string
		limits      []string
		weight      uint32
	}{
		{"container", "container prod/db-0 db observed=false cleared=false dropped=0/0 exits=0", db, 50},
		{"observed", "container prod/db-0 db observed=true cleared=false dropped=0/0 exits=0", db, 50},
		{"cleared", "container prod/db-0 db observed=false cleared=true dropped=0/0 exits=0", db, 50},
		{"dropped", "container prod/db-0 db observed=false cleared=false dropped=4/50 exits=0", []string{""}, 0},
		{"pod-backstop", "pod prod/db-0  observed=false cleared=false dropped=0/0 exits=0", []string{
			"254:0 rbps=max wbps=31457280 riops=1000 wiops=max",
			"254:16 rbps=max wbps=62914560 riops=1000 wiops=max",
		}, 80},
		{"exits", "pod prod/db-0  observed=false cleared=false dropped=0/0 exits=1", db, 80},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Parse(fixture(t, tt.name))
			if err != nil {
				t.Fatal(err)
			}
			about := fmt.Sprintf("%s %s/%s %s observed=%v cleared=%v dropped=%d/%d exits=%d", r.Kind, r.Namespace, r.Pod, r.Container,
				r.Observed, r.Cleared, len(r.Dropped), r.DroppedWeight, len(r.Exits))
			if about != tt.about {
				t.Errorf("%s, want %s", about, tt.about)
			}
			if diff := cmp.Diff(tt.limits, lines(r.DevLimits())); diff != "" || r.Weight != tt.weight {
				t.Errorf("weight %d, want %d; limits: %s", r.Weight, tt.weight, diff)
			}
			for _, e := range r.Exits {
				if got := lines(e.DevLimits()); !slices.Equal(got, []string{
					"254:0 rbps=max wbps=20971520 riops=max wiops=max", "254:16 rbps=max wbps=20971520 riops=max wiops=max",
				}) {
					t.Errorf("limits of %s: %q", e.Container, got)
				}
			}
		})
	}
}

func TestParseError(t *testing.T) {
	for _, in := range []string{"", "{", "null", "[]", `{"v":0}`, `{"v":99}`, `{"v":1,"limits":7}`} {
		if r, err := Parse([]byte(in)); err == nil {
			t.Errorf("%q is %+v, want an error", in, r)
		}
	}
}

// FuzzParse: a record that can be parsed is written as one that says the same.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"container", "observed", "cleared", "dropped", "pod-backstop", "exits"} {
		f.Add(fixture(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse(data)
		if err != nil {
			return
		}
		text := r.Marshal()
		again, err := Parse(text)
		if err != nil || !again.Equal(r) {
			t.Errorf("%s: %v", text, err)
		} else if stable := again.Marshal(); string(stable) != string(text) {
			t.Errorf("%s, then %s", text, stable)
		}
	})
}
