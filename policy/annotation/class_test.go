package annotation

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestClass: the choice of a class, and what cannot be one.
func TestClass(t *testing.T) {
	const key = "class." + Domain + "/containers"
	const hint = " (write the name of a class of the node policy, or remove the annotation)"
	for _, tt := range []struct{ value, name, err string }{
		{"bronze", "bronze", ""},
		{" bronze\n", "bronze", ""},
		{"b-2", "b-2", ""},
		{"", "", "the value is empty" + hint},
		{" \n", "", "the value is empty" + hint},
		{"none", "", `"none": "none" is not a class: only the node policy can leave a pod without one` + hint},
		{"Bronze", "", `"Bronze": invalid class name (` + hintLabel + ")"},
		{"bronze; gold", "", `"bronze; gold": invalid class name (` + hintLabel + ")"},
		{"a/b", "", `"a/b": invalid class name (` + hintLabel + ")"},
		{"\xff\x00", "", `"\xff\x00": invalid class name (` + hintLabel + ")"},
		{strings.Repeat("a", 64), "", `"` + strings.Repeat("a", 64) + `": invalid class name (` + hintLabel + ")"},
		{strings.Repeat("a", 65<<10), "", "the value is longer than 64 KiB" + hint},
	} {
		r := Parse(map[string]string{key: tt.value})
		q, got, err := r.Each(), "", ""
		if r.Chooses() != (tt.name != "") {
			t.Errorf("%.40q: chooses %t", tt.value, r.Chooses())
		}
		if q.Class != nil {
			got = q.Class.Name
		}
		for _, e := range q.Errors() {
			err += strings.TrimPrefix(e.Error(), "nri-blkio: "+key+": ")
		}
		if got != tt.name || err != tt.err {
			t.Errorf("%.40q is %q, %s, want %q, %s", tt.value, got, err, tt.name, tt.err)
		}
	}
	if r := Parse(map[string]string{"class." + Domain + "/container.db": "gold"}); r.Named("db").Class.Name != "gold" || r.Each() != nil {
		t.Errorf("of one container: %+v", r.Named("db"))
	}
	c := Class{Key: key, Name: "gold"}
	if got, want := c.ErrorOf(&Problem{"unknown class", ""}).Error(), "nri-blkio: "+key+`: "gold": unknown class`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestParseLimits: the limits of a policy have the grammar of the annotation, one entry in each
// element.
func TestParseLimits(t *testing.T) {
	l, problems := ParseLimits("classes.gold", []string{"* wbps=20Mi wiops=500", "/data rbps=max", `"/a;b" riops=2k`})
	for i, p := range problems {
		if p != nil || len(l.Entries) != 3 || l.Entries[i].Number != i+1 {
			t.Fatalf("%v, %+v", problems, l.Entries)
		}
	}
	if e := l.Entries[0]; l.Key != "classes.gold" || e.Target.Kind != TargetStar || e.Limits[blkio.Wbps] != 20<<20 || e.Limits[blkio.Wiops] != 500 {
		t.Errorf("%+v", e)
	}
	if diff := cmp.Diff(Targets{Paths: []string{"/a;b", "/data"}, Widest: Star}, l.Targets()); diff != "" {
		t.Error(diff)
	}
	for _, tt := range []struct{ text, want string }{
		{"", `the value is empty (write for example "* wbps=50Mi")`},
		{"# none", `the value is empty (write for example "* wbps=50Mi")`},
		{"* wbps=1Mi; rootfs wbps=2Mi", "2 entries in one element (write one element of the list for each)"},
		{"* wbps=50MB", `invalid quantity "50MB" (write 50M or 50Mi)`},
		{"* wpbs=50Mi", `unknown key "wpbs" (did you mean "wbps"?)`},
		{"rootfs wbps=3Mi", `duplicate target "rootfs", first in entry 1 (write all its limits into one entry)`},
		{strings.Repeat(" ", 65<<10), "the value is longer than 64 KiB (name fewer targets, or use *)"},
	} {
		l, problems := ParseLimits("", []string{"rootfs wbps=1Mi", tt.text})
		if problems[0] != nil || problems[1] == nil || problems[1].String() != tt.want || len(l.Entries) != 1 {
			t.Errorf("%.40q: %v, want %s", tt.text, problems[1], tt.want)
		}
	}
}

// TestParseManyLimits: a list of the policy has at most as many entries as an annotation.
func TestParseManyLimits(t *testing.T) {
	var elements []string
	for i := range maxEntries + 2 {
		elements = append(elements, "/"+strconv.Itoa(i)+" wbps=1Mi")
	}
	l, problems := ParseLimits("classes.gold", elements)
	if len(l.Entries) != maxEntries || problems[maxEntries-1] != nil || problems[maxEntries+1] == nil ||
		problems[maxEntries].String() != "more than 256 entries (name fewer targets, or use *)" {
		t.Errorf("%d entries, %v", len(l.Entries), problems[maxEntries])
	}
}

func TestWeightOfAll(t *testing.T) {
	for weight, want := range map[int]int{0: 0, 1: 1, 500: 1, 10000: 1, 10001: 0, -5: 0} {
		l := WeightOfAll("classes.gold", weight)
		if len(l.Entries) != want || want == 1 && (l.Entries[0].Weight != uint32(weight) || l.Entries[0].Target.Kind != TargetStar || !l.Targets().Weights) {
			t.Errorf("%d: %+v", weight, l.Entries)
		}
	}
}

// TestTargets: what covers what, and both together.
func TestTargets(t *testing.T) {
	one := Targets{Paths: []string{"/a", "/c"}, Volumes: []string{"v"}}
	two := Targets{Paths: []string{"/b", "/c"}, Widest: Star, Weights: true}
	want := Targets{Paths: []string{"/a", "/b", "/c"}, Volumes: []string{"v"}, Widest: Star, Weights: true}
	if diff := cmp.Diff(want, one.And(two)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/a", "/c"}, one.Paths); diff != "" {
		t.Errorf("changed: %s", diff)
	}
	for _, tt := range []struct {
		name   string
		a, b   Targets
		covers bool
	}{
		{"nothing", Targets{}, Targets{}, true},
		{"a part", want, one, true},
		{"all", want, want, true},
		{"more", one, want, false},
		{"another path", one, Targets{Paths: []string{"/b"}}, false},
		{"a volume", two, Targets{Volumes: []string{"v"}}, false},
		{"*", one, Targets{Widest: Star}, false},
		{"rootfs", one, Targets{Widest: Rootfs}, false},
		{"a weight", one, Targets{Weights: true}, false},
	} {
		if got := tt.a.Covers(tt.b); got != tt.covers {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	var none *List
	if diff := cmp.Diff(Targets{}, none.Targets()); diff != "" || (*Request)(nil).Targets().HasStar() {
		t.Error(diff)
	}
}
