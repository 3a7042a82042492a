package annotation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBlockioClass verifies that a name of a class of the policy stays as it is, and any other becomes one.
func TestBlockioClass(t *testing.T) {
	for name, want := range map[string]string{
		"bronze": "bronze", "b--2": "b--2", "LowPrio": "lowprio", "low_prio.fast": "low-prio-fast", "-a-": "a", "": "class", "\xff": "class", "...": "class", "Ünïcode": "n-code",
		"none": "none-2", "NONE": "none-2", "none-2": "none-2", " x ": "x", "a\nb": "a-b",
		strings.Repeat("a", 63): strings.Repeat("a", 63), strings.Repeat("a", 64): strings.Repeat("a", 60), strings.Repeat("a.", 40): strings.Repeat("a-", 29) + "a",
	} {
		if got := BlockioClass(name); got != want || !IsLabel(got) || BlockioClass(got) != got {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

const (
	keyBlockio   = "blockio.resources.beta.kubernetes.io/pod"
	keyBlockioDB = "blockio.resources.beta.kubernetes.io/container.db"
)

// TestBlockioAnnotations verifies that the annotations of the runtimes choose classes, unless the pod has annotations
// of the plugin.
func TestBlockioAnnotations(t *testing.T) {
	const hint = " (write the name of a class of the node policy, or remove the annotation)"
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		keys        []string
		each, db    string // the classes
		ignored     string
		errs        []string
	}{
		{name: "none", annotations: map[string]string{"rdt.resources.beta.kubernetes.io/pod": "a", "blockio.resources.beta.kubernetes.io/Pod": "a", "blockio.resources.beta.kubernetes.io/container.A": "a"}},
		{name: "each", annotations: map[string]string{keyBlockio: "bronze"}, keys: []string{keyBlockio}, each: "bronze"},
		{name: "one", annotations: map[string]string{keyBlockio: "LowPrio", keyBlockioDB: "High_Prio"}, keys: []string{keyBlockioDB, keyBlockio}, each: "lowprio", db: "high-prio"},
		{name: "none is a name", annotations: map[string]string{keyBlockio: "none"}, keys: []string{keyBlockio}, each: "none-2"},
		{name: "empty", annotations: map[string]string{keyBlockio: ""}, keys: []string{keyBlockio}, errs: []string{"nri-blkio: " + keyBlockio + ": the value is empty" + hint}},
		{name: "long", annotations: map[string]string{keyBlockioDB: strings.Repeat("a", maxValue+1)}, keys: []string{keyBlockioDB}, errs: []string{"nri-blkio: " + keyBlockioDB + ": the value is longer than 64 KiB" + hint}},
		{name: "a limit beside it", annotations: map[string]string{keyBlockio: "bronze", keyBlockioDB: "", keyDB: "* wbps=1Mi"}, keys: []string{keyDB}, ignored: keyBlockioDB},
		{name: "a wrong key beside it", annotations: map[string]string{keyBlockio: "bronze", "x." + Domain: ""}, keys: []string{"x." + Domain}, ignored: keyBlockio, errs: []string{"nri-blkio: x." + Domain + `: unknown annotation (there are limits.` + Domain + ", weight." + Domain + " and class." + Domain + ")"}},
	} {
		r := Parse(tt.annotations)
		each, db := "", ""
		if q := r.Each(); q != nil && q.Class != nil {
			each = q.Class.Name
		}
		if q := r.Named("db"); q != nil && q.Class != nil {
			db = q.Class.Name
		}
		if each != tt.each || db != tt.db || r.Chooses() != (each+db != "") || r.IgnoredBlockio() != tt.ignored || r.IsBlockio() != (tt.keys != nil && tt.ignored == "") {
			t.Errorf("%s: classes %q and %q, ignored %q: %+v", tt.name, each, db, r.IgnoredBlockio(), r)
		}
		if d := cmp.Diff(tt.keys, r.Keys()); d != "" || r.Empty() != (tt.keys == nil) || Requests(tt.annotations) != (tt.keys != nil) {
			t.Errorf("%s: keys, -want +got:\n%s", tt.name, d)
		}
		var errs []string
		for _, e := range errorsOf(r, "db") {
			errs = append(errs, e.Error())
		}
		if d := cmp.Diff(tt.errs, errs); d != "" {
			t.Errorf("%s: errors, -want +got:\n%s", tt.name, d)
		}
	}
	c := Parse(map[string]string{keyBlockio: "LowPrio"}).Each().Class
	if got, want := c.ErrorOf(&Problem{"unknown class", ""}).Error(), "nri-blkio: "+keyBlockio+`: "LowPrio": unknown class`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var none *Request
	if none.IsBlockio() || none.IgnoredBlockio() != "" || !IsKey(keyBlockio) || IsBlockio(keyDB) {
		t.Error("not as without annotations")
	}
}

// TestManyBlockio verifies that a pod has a bounded number of choices.
func TestManyBlockio(t *testing.T) {
	annotations := map[string]string{}
	for i := range maxKeys {
		annotations[fmt.Sprint(blockioPrefix, "container.c", i)] = "a"
	}
	if r := Parse(annotations); len(r.Keys()) != maxKeys || len(r.PodWide()) != 0 {
		t.Errorf("%d keys, %v", len(r.Keys()), r.PodWide())
	}
	annotations[keyBlockio] = "a"
	r := Parse(annotations)
	if len(r.PodWide()) != 1 || r.PodWide()[0].Cause != "more than 64 annotations of blockio classes on one pod" || len(r.Keys()) != 1 || !r.IsBlockio() || r.Chooses() {
		t.Errorf("%+v", r)
	}
}

// FuzzBlockio verifies that no annotation of the runtimes causes a panic, and that an error is one short line.
func FuzzBlockio(f *testing.F) {
	f.Add("pod", "LowPrio")
	f.Add("container.db", "")
	f.Add("container.", "a")
	f.Fuzz(func(t *testing.T, name, value string) {
		r := Parse(map[string]string{blockioPrefix + name: value})
		for _, e := range errorsOf(r, "db") {
			checkLine(t, e.Error())
		}
		if r.Empty() != !IsBlockio(blockioPrefix+name) {
			t.Errorf("%+v", r)
		}
		if r.Each() != nil && r.Each().Class != nil && !IsLabel(r.Each().Class.Name) {
			t.Errorf("class %q", r.Each().Class.Name)
		}
	})
}
