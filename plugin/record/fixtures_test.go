package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
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

// TestParseV1 verifies that a node has records of the version that ran before an update.
func TestParseV1(t *testing.T) {
	db := []string{
		"254:0 rbps=max wbps=10485760 riops=500 wiops=max",
		"254:16 rbps=max wbps=52428800 riops=500 wiops=2000",
	}
	for _, tt := range []struct {
		name, about string
		limits      []string
		weight      blkio.Amount
	}{
		{"container", "container prod/db-0 db observed=false cleared=false exits=0", db, 50},
		{"observed", "container prod/db-0 db observed=true cleared=false exits=0", db, 50},
		{"cleared", "container prod/db-0 db observed=false cleared=true exits=0", db, 50},
		{"dropped", "container prod/db-0 db observed=false cleared=false exits=0", []string{""}, 0},
		{"pod-backstop", "pod prod/db-0  observed=false cleared=false exits=0", []string{
			"254:0 rbps=max wbps=31457280 riops=1000 wiops=max",
			"254:16 rbps=max wbps=62914560 riops=1000 wiops=max",
		}, 80},
		{"exits", "pod prod/db-0  observed=false cleared=false exits=1", db, 80},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Parse(fixture(t, tt.name))
			if err != nil {
				t.Fatal(err)
			}
			about := fmt.Sprintf("%s %s/%s %s observed=%v cleared=%v exits=%d", r.Kind, r.Namespace, r.Pod, r.Container,
				r.Observed, r.Cleared, len(r.Exits))
			if about != tt.about {
				t.Errorf("%s, want %s", about, tt.about)
			}
			weight, _ := r.Settings.Weight()
			if diff := cmp.Diff(tt.limits, lines(r.Settings.DevLimits())); diff != "" || weight.Amount != tt.weight {
				t.Errorf("weight %d, want %d; limits: %s", weight.Amount, tt.weight, diff)
			}
			for _, e := range r.Exits {
				if got := lines(e.Limits.DevLimits()); !slices.Equal(got, []string{
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

// TestSourcesV1 verifies that the text for the backstop and "*" are converted to their meaning.
func TestSourcesV1(t *testing.T) {
	const limits, total = "limits.blkio.noderesource.dev/", "limits.blkio.noderesource.dev/pod-total"
	weight := policy.Source{Kind: policy.FromAnnotation, Name: "weight.blkio.noderesource.dev/container.db"}
	for name, want := range map[string][]policy.Source{
		"container": {
			{Kind: policy.FromAnnotation, Name: limits + "container.db", Entry: 2, Target: "rootfs"},
			{Kind: policy.FromAnnotation, Name: limits + "container.db", Entry: 2, Target: "rootfs"},
			{Kind: policy.FromAnnotation, Name: limits + "containers", Entry: 1, IsStar: true, Target: "*"},
			{Kind: policy.FromAnnotation, Name: limits + "container.db", Entry: 1, Target: "/data"},
			{Kind: policy.FromAnnotation, Name: limits + "containers", Entry: 1, IsStar: true, Target: "*"},
			{Kind: policy.FromAnnotation, Name: limits + "container.db", Entry: 1, Target: "/data"},
			weight,
		},
		"pod-backstop": {
			{Kind: policy.FromBackstop},
			{Kind: policy.FromBackstop},
			{Kind: policy.FromAnnotation, Name: total, Entry: 1, Target: "/data"},
			{Kind: policy.FromBackstop},
			{Kind: policy.FromAnnotation, Name: "weight.blkio.noderesource.dev/pod-total"},
		},
	} {
		r := parse(t, string(fixture(t, name)))
		var got []policy.Source
		for _, s := range r.Settings {
			got = append(got, s.Source)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(map[blkio.Dev]string{vda: "vda", vdb: "vdb"}, r.Disks); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// FuzzParse verifies that a record that can be parsed is written as an equal one.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"container", "observed", "cleared", "dropped", "pod-backstop", "exits"} {
		data := fixture(f, name)
		f.Add(data)
		f.Add([]byte(marshal(f, parse(f, string(data)))))
	}
	f.Add([]byte(marshal(f, large(3, "*"))))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse(data)
		if err != nil {
			return
		}
		text, err := r.Marshal(MaxSize)
		if errors.Is(err, ErrTooLarge) {
			return
		}
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(withoutTargets(r.Settings), withoutTargets(again.Settings)); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
		if stable, err := again.Marshal(MaxSize); err != nil || string(stable) != string(text) {
			t.Errorf("%s, then %s, %v", text, stable, err)
		}
	})
}
