package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestEscape(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""},
		{"/var/lib/data", "/var/lib/data"},
		{"Käse 日本", "Käse 日本"},
		{`a "quoted" b`, `a "quoted" b`},
		{"a\tb", `"a\tb"`},
		{"a\nb", `"a\nb"`},
		{"\x1b[31m", `"\x1b[31m"`},
		{"\u202eabc", `"\u202eabc"`}, // changes the direction of the text after it
		{"\x9b31m", `"\x9b31m"`},     // CSI as one byte
		{"\u009b31m", `"\u009b31m"`}, // and as a rune
	}
	for _, tt := range tests {
		if got := Escape(tt.in); got != tt.want {
			t.Errorf("Escape(%q) = %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestEscapeLine(t *testing.T) {
	if got, want := EscapeLine("a \"b\"\nc\x1b"), `a "b"\nc\x1b`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestErrorLines(t *testing.T) {
	a, b, c := errors.New("a\x1b"), errors.New("b"), errors.New("c")
	for _, tt := range []struct {
		err  error
		want []string
	}{
		{a, []string{`a\x1b`}},
		{errors.Join(a, errors.Join(b, c)), []string{`a\x1b`, "b", "c"}},
		{fmt.Errorf("read: %w", errors.Join(b, c)), []string{"read: b; c"}},
		{fmt.Errorf("%w: %w", b, c), []string{"b: c"}},
	} {
		if d := cmp.Diff(tt.want, ErrorLines(tt.err)); d != "" {
			t.Errorf("%q: -want +got:\n%s", tt.err, d)
		}
	}
}

// TestWriteJSON verifies that no character of a tenant's acts on a terminal, and a reader of the JSON gets each
// as it was.
func TestWriteJSON(t *testing.T) {
	in := "a\u009b31m\u202e\x7f\x1b\U000e0001\n\"é"
	var b bytes.Buffer
	if err := WriteJSON(&b, map[string]string{"k": in}); err != nil {
		t.Fatal(err)
	}
	for _, r := range b.String() {
		if r != '\n' && !strconv.IsPrint(r) {
			t.Errorf("%U is in %q", r, b.String())
		}
	}
	var out map[string]string
	if err := json.Unmarshal(b.Bytes(), &out); err != nil || out["k"] != in {
		t.Errorf("%q, %v", out, err)
	}
}

// TestWriteJSONText covers the layout, and the escapes of characters up to U+FFFF and above.
func TestWriteJSONText(t *testing.T) {
	var b bytes.Buffer
	if err := WriteJSON(&b, map[string]any{"name": "é\uffff\U0010ffff\U0001f600", "rows": []int{}}); err != nil {
		t.Fatal(err)
	}
	want := "{\n  \"name\": \"é\\uffff\\udbff\\udfff😀\",\n  \"rows\": []\n}\n"
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestWriteJSONFails verifies that a value that JSON cannot represent is an error, and that nothing is written.
func TestWriteJSONFails(t *testing.T) {
	var b bytes.Buffer
	if err := WriteJSON(&b, map[string]any{"rate": math.Inf(1)}); err == nil || b.Len() > 0 {
		t.Errorf("error %v, wrote %q, want an error and no output", err, b.String())
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a\x1b[0m\u202e\xff")
	f.Fuzz(func(t *testing.T, in string) {
		for _, out := range []string{Escape(in), EscapeLine(in)} {
			if strings.ContainsAny(out, "\x00\x07\x1b\n\r\t\u009b\u202e") {
				t.Errorf("%q has control characters", out)
			}
		}
	})
}

// TestBytes verifies that a value is below 1024 of its unit, except of the largest one.
func TestBytes(t *testing.T) {
	for in, want := range map[uint64]string{
		0: "0", 1023: "1023", 1024: "1K", 1536: "1.5K", 1<<20 - 1: "1024K", 1 << 20: "1M", 20 << 30: "20G", 1 << 40: "1T", 1 << 60: "1E", 1<<64 - 1: "16E",
	} {
		if got := Bytes(in); got != want {
			t.Errorf("%d: got %s, want %s", in, got, want)
		}
	}
}

// TestTable verifies that a cell cannot break the table: neither a tab nor a line end of a tenant's name is
// one.
func TestTable(t *testing.T) {
	var out bytes.Buffer
	table := NewTable(&out, "NAME", "SIZE", "WHAT")
	table.Row("db", "1K", "a disk")
	table.Row("evil\tname\n", "", Blank)
	table.Row("more")
	table.Flush()
	want := "NAME            SIZE  WHAT\ndb              1K    a disk\n\"evil\\tname\\n\"  -      \nmore\n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestOmit verifies that a column is left out if its cells are the same, and only then.
func TestOmit(t *testing.T) {
	table := func(rows ...[]string) string {
		var out bytes.Buffer
		table := NewTable(&out, "A", "B")
		for _, r := range rows {
			table.Row(r...)
		}
		table.Omit("A")
		table.Omit("C")
		table.Flush()
		return out.String()
	}
	for _, tt := range []struct {
		rows [][]string
		want string
	}{
		{nil, "A  B\n"},
		{[][]string{{"x", "1"}}, "B\n1\n"},
		{[][]string{{"x", "1"}, {"x", "2"}}, "B\n1\n2\n"},
		{[][]string{{"x", "1"}, {"y", "1"}}, "A  B\nx  1\ny  1\n"},
	} {
		if d := cmp.Diff(tt.want, table(tt.rows...)); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
}

// TestFit verifies that a table is made narrower only as far as it has to be, and that the header can be left out.
func TestFit(t *testing.T) {
	const name = "abcdefghijklmnop"
	for _, tt := range []struct {
		width int
		want  string
	}{
		{0, "A                 B\n" + name + "  x\n"},
		{19, "A                B\n" + name + " x\n"},
		{18, "A                B\n" + name + " x\n"},
		{12, "A          B\nabcde…mnop x\n"},
		{5, "A        B\nabcd…nop x\n"},
	} {
		var out bytes.Buffer
		table := NewTable(&out, "A", "B")
		table.Row(name, "x")
		table.Fit(tt.width, "A")
		table.Flush()
		if d := cmp.Diff(tt.want, out.String()); d != "" {
			t.Errorf("%d: -want +got:\n%s", tt.width, d)
		}
		out.Reset()
		table.NoHeader()
		table.Flush()
		if strings.Contains(out.String(), "A") || !strings.HasSuffix(tt.want, out.String()) {
			t.Errorf("%d: without a header %q", tt.width, out.String())
		}
	}
}

// TestWriteYAML verifies that a reader gets the document of WriteJSON, and that no character of a tenant's acts on a terminal.
func TestWriteYAML(t *testing.T) {
	for _, name := range []string{"plain", "é", "a\u009b31m", "\u202e", "\x7f", "\x1b", "\u2028", "two\nlines"} {
		in := map[string]any{"name": name, "answer": "yes", "number": "1", "dev": "254:1", "empty": "", "null": "null", "on": true, "rows": []any{}, "n": 1.5}
		var b bytes.Buffer
		if err := WriteYAML(&b, in); err != nil {
			t.Fatal(err)
		}
		for _, r := range b.String() {
			if r != '\n' && !strconv.IsPrint(r) {
				t.Errorf("%U is in %q", r, b.String())
			}
		}
		if name == "plain" && !strings.Contains(b.String(), "\nname: plain\n") {
			t.Errorf("got\n%s", b.String())
		}
		var out map[string]any
		if err := yaml.Unmarshal(b.Bytes(), &out); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(in, out); d != "" {
			t.Errorf("-want +got:\n%s\nof\n%s", d, b.String())
		}
	}
}

func TestNotes(t *testing.T) {
	var out bytes.Buffer
	Notes(&out, "warning", "a\x1b[2J", "b")
	Notes(&out, "none")
	if d := cmp.Diff("warning: a\\x1b[2J\nwarning: b\n", out.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestShorten(t *testing.T) {
	for _, tt := range []struct {
		in    string
		limit int
		want  string
	}{{"pvc", 3, "pvc"}, {"abcdefgh", 5, "ab…gh"}, {"日本語日本語", 4, "日本…語"}} {
		if got := Shorten(tt.in, tt.limit); got != tt.want {
			t.Errorf("%s to %d: got %s, want %s", tt.in, tt.limit, got, tt.want)
		}
	}
}

// TestLines verifies that no byte of another program acts on a terminal, however its writes are cut, and that text stays.
func TestLines(t *testing.T) {
	const in = "POD  Käse \"日本\"\n\na\x1b[2J\u202e\r\x07\n\xff\xe6\x97b\nlast"
	const want = "POD  Käse \"日本\"\n\na\\x1b[2J\\u202e\\r\\a\n\\xff\\xe6\\x97b\nlast\n"
	for size := 1; size <= len(in); size++ {
		var out bytes.Buffer
		lines := Lines{To: &out}
		for rest := []byte(in); len(rest) > 0; {
			n, err := lines.Write(rest[:min(size, len(rest))])
			if err != nil || n == 0 {
				t.Fatal(n, err)
			}
			rest = rest[n:]
		}
		if err := lines.Close(); err != nil || out.String() != want {
			t.Fatalf("in writes of %d bytes: %v\n got %q\nwant %q", size, err, out.String(), want)
		}
	}
}

// TestLinesBounds verifies that a line without an end is written in pieces, and that an error of the writer below is returned.
func TestLinesBounds(t *testing.T) {
	var out bytes.Buffer
	lines := Lines{To: &out}
	for range 3 {
		if _, err := lines.Write(make([]byte, 1<<19)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(lines.rest); n > 1<<20 || out.Len() == 0 {
		t.Errorf("%d bytes are kept, %d are written", n, out.Len())
	}
	r, w := io.Pipe()
	r.Close()
	lines = Lines{To: w}
	if _, err := lines.Write([]byte("a\nb")); err == nil {
		t.Error("a write has no error")
	}
	if err := lines.Close(); err == nil {
		t.Error("Close has no error")
	}
}
