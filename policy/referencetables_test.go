package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A page of docs/reference has tables of fields, which TestReference writes. The source of a table is a type that a
// file is decoded into: the json tags of its fields have their names, and the doc comment of a field has the other columns:
//
//	// The smallest byte rate that a pod may request, see [Bounds].
//	// Values: a quantity from 2. Default: off.
//	Bps scalar `json:"bps"`
//
// Values are left out for a boolean, for a string type with constants, for an object, and for lists of these. The default is
// left out if the code has it ([Page.Defaults]), if the field is required ([Page.Required]), and if there is nothing to say about it.
// For a link such as [Bounds] the page has a definition, "[Bounds]: #bounds".
//
// A page has these lines around the table of a type:
//
//	<!-- what follows is written by make generate: document -->
//	<!-- until here -->
//
// The first table is that of the whole file. Fields of a struct without a table are in the table of the struct above it.

// Page is a page with tables of fields.
type Page struct {
	File     string
	Packages []string // directories; the first one has the types of the file, and others have types of fields
	Defaults any      // a document with the defaults of the code; nil for none
	Required []string // the paths of fields without which a file is invalid, as those of field.Error
}

// Check verifies that the page has the tables of the types. If UPDATE_REFERENCE is set, it writes them.
func (p *Page) Check(t *testing.T) {
	t.Helper()
	old, err := os.ReadFile(p.File)
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.write(string(old))
	if err != nil {
		t.Fatal(err)
	}
	if text == string(old) {
		return
	}
	if os.Getenv("UPDATE_REFERENCE") == "" {
		t.Fatalf("%s differs from the types; run make generate: -page +types\n%s", p.File, cmp.Diff(string(old), text))
	}
	if err := os.WriteFile(p.File, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// section matches the table of a type, with the lines around it.
var section = regexp.MustCompile(`(?s)(<!-- what follows is written by make generate: (\w+) -->\n).*?(<!-- until here -->\n)`)

// write returns a page with the tables of the types.
func (p *Page) write(page string) (string, error) {
	src, err := parse(p.Packages)
	if err != nil {
		return "", err
	}
	g := generator{source: src, required: map[string]bool{}, tables: map[string]*table{}}
	for _, path := range p.Required {
		g.required[strings.ReplaceAll(path, "[0]", "[]")] = true
	}
	if g.defaults, err = values(p.Defaults); err != nil {
		return "", err
	}
	sections := section.FindAllStringSubmatch(page, -1)
	if len(sections) == 0 {
		return "", errors.New("no lines around a table")
	}
	for _, m := range sections {
		g.tables[m[2]] = &table{}
	}
	g.object(sections[0][2], "")
	out := section.ReplaceAllStringFunc(page, func(text string) string {
		m := section.FindStringSubmatch(text)
		t := g.tables[m[2]]
		if len(t.rows) == 0 {
			g.fail("no field has the type " + m[2] + " of a table")
		}
		for _, r := range t.rows {
			for _, link := range r.links() {
				if !strings.Contains(strings.ToLower(page), "\n["+strings.ToLower(link)+"]: ") { // the case is the same for Markdown
					g.fail(m[2] + ": " + r.path + ": the page has no definition of the link [" + link + "]")
				}
			}
		}
		return m[1] + "\n" + t.String() + "\n" + m[3]
	})
	return out, errors.Join(g.errs...)
}

// values returns the JSON values of a document.
func values(document any) (out map[string]any, _ error) {
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	return out, json.Unmarshal(text, &out)
}

// table has the rows of a type.
type table struct {
	uses []string // the paths of objects of this type, each with its dot
	rows []row
}

// row describes a field. Its path begins at the object.
type row struct{ path, values, standard, meaning string }

// String formats a table. The paths begin at the file, if objects of the type are in one place only.
func (t *table) String() string {
	before, hasDefaults := "", false
	if len(t.uses) == 1 {
		before = t.uses[0]
	}
	for _, r := range t.rows {
		hasDefaults = hasDefaults || r.standard != ""
	}
	var out strings.Builder
	line := func(field, values, standard, meaning string) {
		if hasDefaults {
			values += " | " + standard
		}
		out.WriteString("| " + field + " | " + values + " | " + meaning + " |\n")
	}
	line("field", "values", "default", "meaning")
	out.WriteString("|" + strings.Repeat("---|", map[bool]int{false: 3, true: 4}[hasDefaults]) + "\n")
	for _, r := range t.rows {
		line(code(before+r.path), r.values, r.standard, strings.ReplaceAll(r.meaning, "|", `\|`))
	}
	return out.String()
}

// linkOrCode matches code, in which brackets are no link, or a link.
var linkOrCode = regexp.MustCompile("`[^`]*`|\\[((?:[^]`]|`[^`]*`)+)\\]")

// links returns the texts of the links in a row.
func (r *row) links() (out []string) {
	for _, m := range linkOrCode.FindAllStringSubmatch(r.values+" "+r.standard+" "+r.meaning, -1) {
		if m[1] != "" {
			out = append(out, m[1])
		}
	}
	return out
}

// code formats a value: a word, or the words of a list.
func code(value any) string {
	if list, ok := value.([]any); ok {
		words := make([]string, len(list))
		for i := range list {
			words[i] = code(list[i])
		}
		return strings.Join(words, ", ")
	}
	if value == "" {
		return "`\"\"`"
	}
	return fmt.Sprintf("`%v`", value)
}
