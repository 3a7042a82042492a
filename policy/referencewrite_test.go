package policy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/policy"
)

// types is a package with a field of each form.
const types = `package a

import "x/b"

// color is a word.
type color string

const (
	red  color = "red"
	blue color = "blue"
)

type file struct {
	head
	// The color.
	Color *color ` + "`json:\"color\"`" + `
	// Rates of [B]
	// | below. Values: a quantity from 2.
	Rate struct {
		// The rate.
		// Values: a
		// quantity. Default: none at all.
		Bps b.Scalar ` + "`json:\"bps,omitempty\"`" + `
		// The names. Values: a list of ` + "`[x]`" + `.
		Names []string ` + "`json:\"names\"`" + `
	} ` + "`json:\"rate\"`" + `
	// The items.
	Items []item ` + "`json:\"items\"`" + `
	// Other items.
	Others map[string]*item ` + "`json:\"others\"`" + `
	// One box.
	Box box ` + "`json:\"box\"`" + `
	// The words. Values: text.
	Words map[string]string ` + "`json:\"words\"`" + `
}

type head struct {
	// The kind. Values: x.
	Kind string ` + "`json:\"kind\"`" + `
}

type item struct {
	// Whether it is on.
	On bool ` + "`json:\"on\"`" + `
	// Its modes.
	Modes []b.Mode ` + "`json:\"modes\"`" + `
	// Its part.
	Part part ` + "`json:\"part\"`" + `
}

type box struct {
	// The parts.
	Parts []part ` + "`json:\"parts\"`" + `
}

type part struct {
	// The size. Values: 1 to 5.
	Size int ` + "`json:\"size\"`" + `
}
`

// other is the package of some fields' types.
const other = "package b\n\ntype Scalar string\n\ntype Mode string\n\nconst Slow Mode = \"slow\"\n\nconst Fast Mode = \"fast\"\n"

// tables returns a page with a table of each of these types.
func tables(names ...string) string {
	page := "# Title\n\n[B]: #b\n"
	for _, name := range names {
		page += "\n<!-- what follows is written by make generate: " + name + " -->\nold\n<!-- until here -->\n"
	}
	return page + "\nEnd.\n"
}

// write writes a page for a package. The page has the defaults and required fields of the file.
func write(t *testing.T, page, types string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"a/a.go": types, "a/a_test.go": "not Go", "b/b.go": other} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := Page{
		Packages: []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")},
		Defaults: map[string]any{"color": "red", "rate": map[string]any{"names": []string{"", "y"}}, "kind": "", "items": nil},
		Required: []string{"kind", "items[0].on", "box.parts[0].size"},
	}
	return p.write(page)
}

// TestReference verifies that the tables of the page are those of the types, of Default, and of the errors about fields that are
// required.
func TestReference(t *testing.T) {
	page := Page{File: "../docs/reference/policy.md", Packages: []string{"."}}
	page.Defaults, page.Required = policy.ReferenceFacts()
	page.Check(t)
}

func TestWrite(t *testing.T) {
	got, err := write(t, tables("file", "item", "box"), types)
	if err != nil {
		t.Fatal(err)
	}
	want := "# Title\n\n[B]: #b\n\n<!-- what follows is written by make generate: file -->\n\n" +
		"| field | values | default | meaning |\n|---|---|---|---|\n" +
		"| `kind` | x | required | The kind. |\n" +
		"| `color` | `red`, `blue` | `red` | The color. |\n" +
		"| `rate` | a quantity from 2 |  | Rates of [B] \\| below. |\n" +
		"| `rate.bps` | a quantity | none at all | The rate. |\n" +
		"| `rate.names` | a list of `[x]` | `\"\"`, `y` | The names. |\n" +
		"| `items` | a list of objects |  | The items. |\n" +
		"| `others.NAME` | an object |  | Other items. |\n" +
		"| `box` | an object |  | One box. |\n" +
		"| `words` | text |  | The words. |\n" +
		"\n<!-- until here -->\n\n<!-- what follows is written by make generate: item -->\n\n" +
		"| field | values | default | meaning |\n|---|---|---|---|\n" + // of two fields, so the path begins here
		"| `on` | `true`, `false` | required | Whether it is on. |\n" +
		"| `modes` | a list of `slow`, `fast` |  | Its modes. |\n" +
		"| `part` | an object |  | Its part. |\n" +
		"| `part.size` | 1 to 5 |  | The size. |\n" +
		"\n<!-- until here -->\n\n<!-- what follows is written by make generate: box -->\n\n" +
		"| field | values | default | meaning |\n|---|---|---|---|\n" +
		"| `box.parts` | a list of objects |  | The parts. |\n" +
		"| `box.parts[].size` | 1 to 5 | required | The size. |\n" +
		"\n<!-- until here -->\n\nEnd.\n"
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	again, err := write(t, got, types)
	if d := cmp.Diff(got, again); err != nil || d != "" {
		t.Errorf("%v, another time:\n%s", err, d)
	}
}

// TestSharedBelow verifies that the path of a type begins at its object, if the object above it has two places.
func TestSharedBelow(t *testing.T) {
	got, err := write(t, tables("file", "item", "part"), types)
	if err != nil || !strings.Contains(got, "\n| `size` | 1 to 5 | The size. |\n") {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestWriteErrors(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{"\t// The color.\n", "", "a.go:15:2: color: no doc comment with a meaning"},
		{"// The kind. Values", "// Values", "kind: no doc comment with a meaning"},
		{"The size. Values: 1 to 5.", "The size.", `box.parts[].size: the comment has no "Values: "`},
		{"// The color.", "// The color. Default: blue.", "color: the comment has the default blue, and the code has `red`"},
		{"// Whether it is on.", "// Whether it is on. Default: `true`.", "items[].on: the comment has the default `true`, and the code has required"},
		{"// Rates of [B]", "// Rates of [C]", "file: rate: the page has no definition of the link [C]"},
		{"`json:\"size\"`", "", "no json tag"},
		{"type item struct", "type items struct", "no struct item"},
		{"type box struct {", "type box struct", "expected '{'"},
		{"Box box ", "Box string ", "no field has the type box of a table"},
	} {
		text := strings.Replace(types, tt.old, tt.new, 1)
		if _, err := write(t, tables("file", "item", "box"), text); text == types || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q:\n got %v\nwant %s", tt.new, err, tt.want)
		}
	}
	if _, err := write(t, "# Title\n", types); err == nil {
		t.Error("a page without tables is accepted")
	}
}

// TestLinks verifies that brackets in code are no links.
func TestLinks(t *testing.T) {
	r := row{values: "`[a]`", standard: "[b]", meaning: "See [c d], `x[e]` and [`f`]."}
	if got := r.links(); !slices.Equal(got, []string{"b", "c d", "`f`"}) {
		t.Errorf("%q", got)
	}
}
