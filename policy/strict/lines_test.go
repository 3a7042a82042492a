package strict

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestWrongElement verifies that of several values of one kind, the error names the one that is wrong. The
// decoder names neither the element of a list nor the key of a map.
func TestWrongElement(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"items:\n- parts:\n  - size: 1\n  - size: 1.5", `line 4: items[0].parts[1].size: Invalid value: expected a whole number, found number 1.5`},
		{"items:\n- parts: [{size: 2}]\n- parts:\n  - size: 1e20", `line 4: items[1].parts[0].size: Invalid value: expected a whole number, found number 100000000000000000000`},
		{"boxes:\n  a: {parts: [{size: 3}]}\n  b: {parts: [{size: -0.5}]}", `line 3: boxes.b.parts[0].size: Invalid value: expected a whole number, found number -0.5`},
		{"count: 7\npiles:\n  a: [{size: 7}]\n  b: [{size: 7.25}]", `line 4: piles.b[0].size: Invalid value: expected a whole number, found number 7.25`},
		{"items:\n- inner: {a: {size: 1}}\n- inner:\n    b: {size: 18446744073709551616}", `line 4: items[1].inner.b.size: Invalid value: expected a whole number, found number 18446744073709552000`},
		{"items: [{name: a}, {name: b},\n {name: true}]", `line 2: items[2].name: Invalid value: expected a string, found bool (write it in quotes)`},
		{"boxes:\n  z: {name: [a]}\n  a.b: {name: x}", `line 2: boxes.z.name: Invalid value: expected a string, found array`},
		{"Labels:\n  a: b\n  c: 1", `line 3: Labels.c: Invalid value: expected a string, found number (write it in quotes)`},
		{"items:\n- name: a\n- [name]", `line 3: items[1]: Invalid value: expected an object with fields, found array`},
		{"piles:\n  a: []\n  b: [[]]", `line 3: piles.b[0]: Invalid value: expected an object with fields, found array`},
		{"boxes:\n  a: {}\n  b: 5", `line 3: boxes.b: Invalid value: expected an object with fields, found number`},
	} {
		if _, err := decode(tt.text); err != tt.want {
			t.Errorf("%q:\n got %s\nwant %s", tt.text, err, tt.want)
		}
	}
}

// TestLines verifies that the line of a field is that of its key, also after an alias. For a missing field it
// is the line of the nearest object above it.
func TestLines(t *testing.T) {
	const text = "# head\nkind: x\nitems:\n- name: a\n  parts: &p\n  - size: 1\n  -\n    size: 2\n- {parts: *p}\nboxes:\n  a.b:\n    name: c\n  a:\n    b: {name: d}\n"
	root := field.NewPath("items")
	for _, tt := range []struct {
		text string
		at   *field.Path
		want int
	}{
		{text, field.NewPath("kind"), 2},
		{text, root, 3},
		{text, root.Index(0), 4},
		{text, root.Index(0).Child("parts"), 5},
		{text, root.Index(0).Child("parts").Index(1).Child("size"), 8},
		{text, root.Index(1).Child("parts"), 9},
		{text, root.Index(1).Child("parts").Index(0).Child("size"), 6}, // at the anchor
		{text, root.Index(2), 3},
		{text, root.Index(0).Child("name", "first"), 4},
		{text, field.NewPath("boxes").Child("a").Child("b").Child("name"), 14},
		{text, field.NewPath("boxes").Key("a"), 13},
		{text, field.NewPath("nothing"), 0},
		{"---\n\n\nkind: x", field.NewPath("kind"), 4},
		{`{"kind":` + "\n" + `"x"}`, field.NewPath("kind"), 1},
		{"\ufeffkind: x", field.NewPath("kind"), 1},
		{"", root, 0},
		{"- a", root.Index(0), 0},
		{"kind: [", field.NewPath("kind"), 0},
	} {
		var root yaml.Node
		_ = yaml.Unmarshal([]byte(tt.text), &root) // the last one has none
		if got := lineOf(&root, tt.at.String()); got != tt.want {
			t.Errorf("%s in %q: line %d, want %d", tt.at, tt.text, got, tt.want)
		}
	}
}

// TestLinesOfErrors verifies that each error of a list gets its line. Without errors nothing is parsed, and
// text that cannot be parsed gives none.
func TestLinesOfErrors(t *testing.T) {
	at := func(paths ...string) (errs field.ErrorList) {
		for _, path := range paths {
			errs = append(errs, field.Required(field.NewPath(path), ""))
		}
		return errs
	}
	for _, tt := range []struct {
		text string
		errs field.ErrorList
		want string
	}{
		{"a: 1\nb: 2", at("b", "a", "c"), "[line 2: b: Required value, line 1: a: Required value, c: Required value]"},
		{"a: [", at("a"), "a: Required value"},
		{"a: &a [*a]", at("a"), "line 1: a: Required value"},
	} {
		if err := WithLines([]byte(tt.text), tt.errs).ToAggregate(); err == nil || err.Error() != tt.want {
			t.Errorf("%q: %v, want %s", tt.text, err, tt.want)
		}
	}
	if errs := WithLines([]byte("a: ["), nil); errs != nil {
		t.Errorf("%v", errs)
	}
}

// FuzzLine verifies that a line is one of the text, for each path, and the same each time.
func FuzzLine(f *testing.F) {
	for _, path := range []string{"", "a", "a[0].b", "[0]", "[99999999999999999999]", "a..b", "a[b]", "]["} {
		f.Add("a:\n- b: &x [c]\n- *x\n", path)
	}
	f.Fuzz(func(t *testing.T, text, path string) {
		var root yaml.Node
		if yaml.Unmarshal([]byte(text), &root) != nil {
			return
		}
		line := lineOf(&root, path)
		if again := lineOf(&root, path); line != again || line < 0 || line > len(text)+1 {
			t.Errorf("%q: line %d, then %d", text, line, again)
		}
		want := ""
		if line > 0 {
			want = "line " + strconv.Itoa(line) + ": "
		}
		errs := WithLines([]byte(text), field.ErrorList{{Field: path}})
		if d := cmp.Diff(want+path, errs[0].Field); d != "" {
			t.Error(d)
		}
	})
}
