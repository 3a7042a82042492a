package strict

import (
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
)

// one is the error about text after the first document.
const one = "expected one YAML document, found more"

// TestOneDocument verifies that nothing is left out without a word, however the end of a document is written.
// Comments, and documents without content, are no content.
func TestOneDocument(t *testing.T) {
	for text, want := range map[string]string{
		"kind: x\n---\t{kind: y}":             one,
		"kind: x\n---\t# a comment\nkind: y":  one,
		"kind: x\r---\rkind: y":               one, // lines of old Macintosh files
		"kind: x\r\n---\r\nkind: y\r\n":       one,
		"kind: x\u0085---\u0085kind: y":       one,
		"kind: x\u2028---\u2029kind: y":       one,
		`{"kind": "x"} {"kind": "y"}`:         one,
		"{kind: x}\nkind: y":                  one,
		"{kind: x} y":                         one,
		"kind: x\n---\n[":                     one,
		"kind: x\n---\n\"\\z\"":               "line 3: found unknown escape character",
		"kind: x\n---\n---\n# a\n---\nkind":   one,
		"---\n---\nkind: x":                   one, // the decoder would read the first one
		"# a\n---\n# b\n---\nkind: x":         one,
		"null\n---\nkind: x":                  one,
		"kind: x\n%TAG ! tag:y\n---\nkind: z": one,

		"\ufeff# a comment\n---\nkind: x":   "",
		"%YAML 1.1\n---\nkind: x":           "",
		"kind: x\n---\n":                    "",
		"kind: x\n---\n---\n# a\n---\nnull": "",
		"kind: x\n...\n# a\n...\n":          "",
		"kind: |-\n  x\n  ---\n":            "",
		"'kind': 'x' # ---":                 "",

		"kind: 'x\n---\n'":   "found unexpected document indicator",
		"kind: [\n---\n]":    "did not find expected node content",
		"kind: x\n...\x00":   "control characters are not allowed",
		"kind: x\n---\n\xff": "invalid leading UTF-8 octet",
	} {
		if _, err := decode(text); !strings.Contains(err, want) || want == "" && err != "" {
			t.Errorf("%q:\n got %s\nwant %s", text, err, want)
		}
	}
}

// TestUTF16 verifies that UTF-16, which some programs of Windows write, is decoded, and that a second document
// in it is refused.
func TestUTF16(t *testing.T) {
	for text, want := range map[string]string{"kind: x\n": "", "kind: x\n---\nkind: y\n": one, "kind: x\ncount: ü\n": "line 2: count: Invalid value"} {
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			var data []byte
			for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
				data = order.AppendUint16(data, unit)
			}
			if o, err := decode(string(data)); !strings.Contains(err, want) || want == "" && (err != "" || o.Kind != "x") {
				t.Errorf("%q in %v: %+v, %s", text, order, o, err)
			}
		}
	}
}

// TestDefaults verifies that a field that is left out keeps its value, and so do the others of its object. A
// list and a map of the document take the place of those before.
func TestDefaults(t *testing.T) {
	o := order{head: head{Kind: "kept"}, Count: 1, Rate: "2", Items: []item{{Name: "a"}, {Name: "b"}}, Labels: map[string]string{"k": "kept"}}
	unknown, err := Decode([]byte("count: 5\nitems: [{name: c}]\nLabels: {l: m}\n"), &o)
	if err != nil || unknown != nil {
		t.Fatal(unknown, err)
	}
	want := order{head: head{Kind: "kept"}, Count: 5, Rate: "2", Items: []item{{Name: "c"}}, Labels: map[string]string{"k": "kept", "l": "m"}}
	if d := cmp.Diff(want, o, cmp.AllowUnexported(order{})); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestSeveralErrors verifies that all unknown fields are reported at once, and so are all fields without a
// value, in the order of their names. A value of a wrong type is reported alone.
func TestSeveralErrors(t *testing.T) {
	for text, want := range map[string]string{
		"zz: 1\nkidn: 2\nitems:\n- {b: 1, a: 2}": `[line 4: items[0].a: Forbidden: unknown field (the fields are inner, name, parts), line 4: items[0].b: Forbidden: unknown field (the fields are inner, name, parts), line 2: kidn: Forbidden: unknown field (did you mean "kind"?), line 1: zz: Forbidden: unknown field (the fields are Labels, boxes, count, fast, items, kind, piles, rate)]`,
		"kind:\nitems:\n- name: ~\n- {parts: [null]}\nboxes: {b: , a: }": `[line 5: boxes.a: Required value, line 5: boxes.b: Required value, line 3: items[0].name: Required value, ` +
			`line 4: items[1].parts[0]: Required value, line 1: kind: Required value]`,
		"zz: 1\nkind: 2\ncount: x":             `line 3: count: Invalid value: expected a whole number, found string`,
		"zz:\nkind: 2":                         `line 1: zz: Required value`,
		"count: 1\ncount: 2\nkind: x\nkind: y": "yaml: unmarshal errors:\n  line 2: key \"count\" already set in map\n  line 4: key \"kind\" already set in map",
	} {
		for range 5 { // the order of a map is another one each time
			if _, err := decode(text); err != want {
				t.Fatalf("%q:\n got %s\nwant %s", text, err, want)
			}
		}
	}
}

// TestHint verifies that a hint is a field of the same object, with the index of each list and the key of each
// map as they are written. If no field is near, the hint has all fields of the object.
func TestHint(t *testing.T) {
	const (
		top   = "the fields are Labels, boxes, count, fast, items, kind, piles, rate"
		items = "the fields are inner, name, parts"
	)
	for path, want := range map[string]string{
		"knid":                          `did you mean "kind"?`,
		"ITEMS":                         `did you mean "items"?`,
		"items[3].nmae":                 `did you mean "items[3].name"?`,
		"items[3].parts[12].siez":       `did you mean "items[3].parts[12].size"?`,
		"items[3].inner.a.siez":         `did you mean "items[3].inner.a.size"?`,
		"boxes.NAME.nmae":               `did you mean "boxes.NAME.name"?`,
		"boxes.items.nmae":              `did you mean "boxes.items.name"?`,
		"boxes.a-1.parts[2].siez":       `did you mean "boxes.a-1.parts[2].size"?`,
		"boxes.\x1b\u202e.nmae":         `did you mean "boxes.\x1b\u202e.name"?`,
		"piles.a[7].siez":               `did you mean "piles.a[7].size"?`,
		"boxes.nmae":                    "", // a key of the map, and no field
		"piles":                         `did you mean "piles"?`,
		"name":                          top,
		"x":                             top,
		"":                              top,
		"items[0].nm":                   items, // as near to a name as to nothing
		"items[0].a":                    items,
		"items.name":                    "", // without an index
		strings.Repeat("items[0].", 99): "",
		strings.Repeat("k", 1<<20):      top,
	} {
		if got := hint(path, reflect.TypeFor[*order]()); got != want {
			t.Errorf("%.40q: %s, want %s", path, got, want)
		}
	}
}
