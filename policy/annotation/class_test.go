package annotation

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestClass covers valid and invalid choices of a class.
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
	if got, want := c.ErrorOf(UnknownClass, &Problem{"unknown class", ""}).Error(), "nri-blkio: "+key+`: "gold": unknown class`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestParseLimits verifies that the limits of a policy have the grammar of the annotation, one entry in each
// element.
func TestParseLimits(t *testing.T) {
	l, problems := ParseLimits("classes.gold", []string{"* wbps=20Mi wiops=500", "/data rbps=max", `"/a;b" riops=2k`})
	for i, p := range problems {
		if p != nil || len(l.Entries) != 3 || l.Entries[i].Number != i+1 {
			t.Fatalf("%v, %+v", problems, l.Entries)
		}
	}
	if e := l.Entries[0]; l.From.Field != "classes.gold" || e.Target.Kind != TargetStar || e.Limits[blkio.Wbps] != 20<<20 || e.Limits[blkio.Wiops] != 500 {
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
		{"* bps=50Mi rbps=1Mi", `the keys "bps" and "rbps" set the same limit (bps and iops set both directions; write one of the two keys)`},
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

// TestParseManyLimits verifies that a list of the policy has at most as many entries as an annotation.
func TestParseManyLimits(t *testing.T) {
	var elements []string
	for i := range MaxEntries + 2 {
		elements = append(elements, "/"+strconv.Itoa(i)+" wbps=1Mi")
	}
	l, problems := ParseLimits("classes.gold", elements)
	if len(l.Entries) != MaxEntries || problems[MaxEntries-1] != nil || problems[MaxEntries+1] == nil ||
		problems[MaxEntries].String() != "more than 256 entries (name fewer targets, or use *)" {
		t.Errorf("%d entries, %v", len(l.Entries), problems[MaxEntries])
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

// TestElements verifies that an element of a list of the policy has its index as the number of its entry, also
// after wrong ones.
func TestElements(t *testing.T) {
	elements := []string{"/a", "* wbps=1Mi", "", "# no", "* riops=5", "/b riops=5 ", "\n /c wbps=max;"}
	l, problems := ParseLimits("classes.gold.limits", elements)
	var got []string
	for i, p := range problems {
		if p != nil {
			got = append(got, fmt.Sprint(i+1, " ", p.Cause))
		}
	}
	for _, e := range l.Entries {
		got = append(got, fmt.Sprint("entry ", e.Number, " ", e.Target.Text))
		if err := l.ErrorOf(&e, NoDisk, &Problem{"no", ""}); err.Text != strings.Trim(elements[e.Number-1], " \n;") || err.Entry != e.Number {
			t.Errorf("%+v", err)
		}
	}
	want := []string{"1 no limit after the target", "3 the value is empty", "4 the value is empty", `5 duplicate target "*", first in entry 2`, "entry 2 *", "entry 6 /b", "entry 7 /c"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	w := WeightOfAll("classes.gold", 500)
	if got, want := w.ErrorOf(&w.Entries[0], NoMount, &Problem{"no", ""}).Error(), `nri-blkio: classes.gold: "500": no`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
