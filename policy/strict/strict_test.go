package strict

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// order is a document of the tests.
type order struct {
	head
	Count  int               `json:"count"`
	Rate   Scalar            `json:"rate"`
	Fast   bool              `json:"fast"`
	Items  []item            `json:"items,omitempty"`
	Boxes  map[string]item   `json:"boxes,omitempty"`
	Piles  map[string][]part `json:"piles,omitempty"`
	Labels map[string]string
}

type head struct {
	Kind string `json:"kind"`
}

type item struct {
	Name  string          `json:"name"`
	Parts []part          `json:"parts,omitempty"`
	Inner map[string]part `json:"inner,omitempty"`
}

type part struct {
	Size int `json:"size"`
}

// decode returns a document, and the text of all errors with their lines.
func decode(text string) (*order, string) {
	var o order
	unknown, err := Decode([]byte(text), &o)
	if err == nil {
		err = Join([]byte(text), unknown)
	}
	if err != nil {
		return nil, err.Error()
	}
	return &o, ""
}

func TestDecode(t *testing.T) {
	want := &order{
		head: head{Kind: "x"}, Count: 3, Rate: "20Mi", Fast: true,
		Items: []item{{Name: "a", Parts: []part{{Size: 1}, {Size: 2}}}}, Boxes: map[string]item{"b": {Name: "c"}},
	}
	for _, text := range []string{
		"kind: x\ncount: 3\nrate: 20Mi\nfast: true\nitems: [{name: a, parts: [{size: 1}, {size: 2}]}]\nboxes: {b: {name: c}}\n",
		"# a comment\n---\nkind: x\ncount: 3\nrate: 20Mi\nfast: on\nitems:\n- name: a\n  parts: &p\n  - size: 1\n  - size: 2\nboxes:\n  b: {name: c}\n...\n",
		`{"kind": "x", "count": 3, "rate": "20Mi", "fast": true, "items": [{"name": "a", "parts": [{"size": 1}, {"size": 2}]}], "boxes": {"b": {"name": "c"}}}`,
	} {
		got, err := decode(text)
		if err != "" {
			t.Errorf("%q: %s", text, err)
			continue
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(order{})); d != "" {
			t.Errorf("%q: -want +got:\n%s", text, d)
		}
	}
}

// TestErrors verifies that an error names the line of the field, its path with the index in each list, and the
// cause.
func TestErrors(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"knid: x", `line 1: knid: Forbidden: unknown field (did you mean "kind"?)`},
		{"Kind: x", `line 1: Kind: Forbidden: unknown field (did you mean "kind"?)`},
		{"zzzz: 1", `line 1: zzzz: Forbidden: unknown field (the fields are Labels, boxes, count, fast, items, kind, piles, rate)`},
		{"items:\n- x: 1", `line 2: items[0].x: Forbidden: unknown field (the fields are inner, name, parts)`},
		{"boxes: {b: {x: 1}}", `boxes.b.x: Forbidden: unknown field (the fields are inner, name, parts)`},
		{"zzzz: {yyyy: 1}\nkind: x", `zzzz: Forbidden: unknown field (the fields are`},
		{"items:\n- {}\n- nmae: a", `line 3: items[1].nmae: Forbidden: unknown field (did you mean "items[1].name"?)`},
		{"items: [{parts: [{}, {}, {sise: 1}]}]", `items[0].parts[2].sise: Forbidden: unknown field (did you mean "items[0].parts[2].size"?)`},
		{"boxes:\n  large:\n    nmae: a", `line 3: boxes.large.nmae: Forbidden: unknown field (did you mean "boxes.large.name"?)`},
		{"boxes: {large: {parts: [{}, {sise: 1}]}}", `boxes.large.parts[1].sise: Forbidden: unknown field (did you mean "boxes.large.parts[1].size"?)`},
		{"items: [{}, {inner: {a: {sise: 1}}}]", `items[1].inner.a.sise: Forbidden: unknown field (did you mean "items[1].inner.a.size"?)`},
		{"piles: {tall: [{}, {sise: 1}]}", `piles.tall[1].sise: Forbidden: unknown field (did you mean "piles.tall[1].size"?)`},
		{"kind: 1", `line 1: kind: Invalid value: expected a string, found number (write it in quotes)`},
		{"kind: yes", `line 1: kind: Invalid value: expected a string, found bool (write it in quotes)`},
		{"kind: [a]", `line 1: kind: Invalid value: expected a string, found array`},
		{"items: a", `line 1: items: Invalid value: expected a list, found string (write it in brackets: [a, b])`},
		{"kind: x\ncount: many", `line 2: count: Invalid value: expected a whole number, found string`},
		{"count: 1.5", `count: Invalid value: expected a whole number, found number 1.5`},
		{"fast: maybe", `fast: Invalid value: expected true or false, found string`},
		{"items: {}", `items: Invalid value: expected a list, found object`},
		{"items:\n- name: a\n- parts:\n  - 7", `line 4: items[1].parts[0]: Invalid value: expected an object with fields, found number`},
		{"boxes:\n  a: {name: a}\n  b: {name: [1]}", `line 3: boxes.b.name: Invalid value: expected a string, found array`},
		{"piles:\n  tall: [{}]\n  low: {size: 1}", `line 3: piles.low: Invalid value: expected a list, found object`},
		{"boxes: []", `boxes: Invalid value: expected an object with fields, found array`},
		{"kind: x\nrate:", `line 2: rate: Required value`},
		{"items: [null]", `items[0]: Required value`},
		{"kind: x\nkind: y", `line 2: key "kind" already set in map`},
		{"kind: x\n---\nkind: y", `expected one YAML document, found more`},
		{"kind: x\n...\nkind: y", `expected one YAML document, found more`},
		{"[]", `expected an object with fields, found array`},
		{"kind: [", `did not find expected node content`},
	} {
		if _, err := decode(tt.text); !strings.Contains(err, tt.want) {
			t.Errorf("%q:\n got %s\nwant %s", tt.text, err, tt.want)
		}
	}
}

// TestManyErrors verifies that the error of a large file has a bounded size, with the place and the cause of
// each error that it has. The time does not grow with the square of the file.
func TestManyErrors(t *testing.T) {
	long := strings.Repeat("ü", 1<<20)
	var errs field.ErrorList
	var list strings.Builder
	for i := range 20_000 {
		list.WriteString("- {name: a}\n")
		errs = append(errs, field.Invalid(field.NewPath("items").Index(i).Child("name"), long, "the cause"))
	}
	text := Join([]byte("items:\n"+list.String()), append(errs[:1:1], errs...)).Error()
	if len(text) > 21<<10 || !utf8.ValidString(text) || strings.Count(text, "the cause") != 19 ||
		!strings.HasPrefix(text, "[line 2: items[0].name: Invalid value: ") || !strings.HasSuffix(text, ", and 19981 more]") {
		t.Errorf("%d bytes: %.100s ... %s", len(text), text, text[len(text)-50:])
	}
	for _, text := range []string{"kind: x\n" + long + ": 1\n" + long + ": 2", "#" + strings.Repeat("x", MaxSize)} {
		if _, err := decode(text); err == "" || len(err) > 2<<10 {
			t.Errorf("%d bytes: %.100s", len(err), err)
		}
	}
	if Join(nil, nil) != nil {
		t.Error("an error for none")
	}
}

// TestHeader verifies that each of the two fields is required, and has one value.
func TestHeader(t *testing.T) {
	for _, tt := range []struct{ version, kind, want string }{
		{"v1", "Order", ""},
		{"", "Order", `apiVersion: Required value: write "v1"`},
		{"v2", "Order", `apiVersion: Unsupported value: "v2": supported values: "v1"`},
		{"v1", "order", `kind: Unsupported value: "order": supported values: "Order"`},
		{"", "", `[apiVersion: Required value: write "v1", kind: Required value: write "Order"]`},
	} {
		got := ""
		if err := Header(tt.version, "v1", tt.kind, "Order").ToAggregate(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%q %q: got %s, want %s", tt.version, tt.kind, got, tt.want)
		}
	}
}

// TestScalar verifies that a scalar keeps the text of each value, so that its parser can refuse it by its path.
func TestScalar(t *testing.T) {
	for text, want := range map[string]Scalar{"20Mi": "20Mi", "500": "500", "true": "true", "'0x1'": "0x1", "[1]": "[1]", "''": ""} {
		got, err := decode("rate: " + text)
		if err != "" || got.Rate != want {
			t.Errorf("%s: %+v, %s", text, got, err)
		}
	}
}

// TestWithLines verifies that a field that is missing has the line of the one that it belongs to.
func TestWithLines(t *testing.T) {
	const text = "kind: x\nitems:\n- name: a\n"
	for path, want := range map[string]string{
		"items[0].name": "line 3: items[0].name", "items[0].size": "line 3: items[0].size", "items[4]": "line 2: items[4]", "zz": "zz", "kind.of": "line 1: kind.of",
	} {
		errs := WithLines([]byte(text), field.ErrorList{{Type: field.ErrorTypeInvalid, Field: path}})
		if got := errs[0].Field; got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// FuzzDecode verifies that no text causes a panic, the error is the same each time, and no second document is
// left out.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		"", "kind: x", "items: [{name: a}]", "boxes: {a: {nmae: b}}", "head: {kind: 1}", "boxes: {'a[1]': {sise: 1}}", "items: &a [{parts: *a}]", "'': 1", "a.b: {c: 1}",
		"kind: x\n---\t{kind: y}", "{kind: x} y", "rate: -.inf", "piles: {a: [], b: [[1.5]]}", "kind: \"\\x1b\"", "\ufeff# a\r---\r",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := decode(text)
		if _, again := decode(text); again != err {
			t.Errorf("%q, then %q", err, again)
		}
		if (got == nil) != (err != "") {
			t.Errorf("%+v beside %q", got, err)
		}
		if strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") {
			return // UTF-16
		}
		if last, err := decode(text + "\n---\nkind: last"); err == "" && last.Kind != "last" {
			t.Errorf("the last document was left out: %+v", last)
		}
	})
}
