package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf16"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// Blank is a cell that stays empty. An empty string becomes "-".
const Blank = " "

// Table is a table with aligned columns, which Flush writes.
type Table struct {
	out      *bytes.Buffer
	rows     [][]string // the header first
	gap      int        // between columns
	noHeader bool
}

// NewTable returns a table with this header.
func NewTable(out *bytes.Buffer, header ...string) *Table {
	t := &Table{out: out, gap: 2}
	t.Row(header...)
	return t
}

// Row adds a row. Its cells are escaped.
func (t *Table) Row(cells ...string) {
	escaped := make([]string, len(cells))
	for i, c := range cells {
		if escaped[i] = Escape(c); c == "" {
			escaped[i] = "-"
		}
	}
	t.rows = append(t.rows, escaped)
}

// Omit leaves out a column if it has the same cell in each row.
func (t *Table) Omit(column string) {
	i := slices.Index(t.rows[0], column)
	differs := func(row []string) bool { return row[i] != t.rows[1][i] }
	if i < 0 || len(t.rows) < 2 || slices.ContainsFunc(t.rows[1:], differs) {
		return
	}
	for k, row := range t.rows {
		t.rows[k] = slices.Delete(row, i, i+1)
	}
}

// NoHeader leaves out the header.
func (t *Table) NoHeader() { t.noHeader = true }

// Fit makes the table at most so wide, if that is possible: with small gaps, and shortened cells in some columns. A column leaves what it
// does not need to those after it. A width of 0 is any.
func (t *Table) Fit(width int, columns ...string) {
	const least = 8 // characters of a name that is shortened
	if width == 0 {
		return
	}
	t.gap = 1
	rest := width + t.gap
	for _, column := range t.rows[0] {
		rest -= t.gap
		if !slices.Contains(columns, column) {
			rest -= t.shorten(column, width)
		}
	}
	for i, column := range columns {
		rest -= t.shorten(column, max(least, rest/(len(columns)-i)))
	}
}

// shorten shortens the cells of a column, and returns its width.
func (t *Table) shorten(column string, limit int) (most int) {
	i := slices.Index(t.rows[0], column)
	for _, row := range t.rows {
		row[i] = Shorten(row[i], limit)
		most = max(most, utf8.RuneCountInString(row[i]))
	}
	return most
}

// Flush writes the table.
func (t *Table) Flush() {
	w := tabwriter.NewWriter(t.out, 0, 8, t.gap, ' ', 0)
	for i, row := range t.rows {
		if i > 0 || !t.noHeader {
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
	}
	_ = w.Flush() // to a buffer, which never fails
}

// Notes writes messages of this program, a line each with a common prefix: "warning: ...".
func Notes(out io.Writer, prefix string, messages ...string) {
	for _, m := range messages {
		fmt.Fprintf(out, "%s: %s\n", prefix, EscapeLine(m))
	}
}

// Bytes formats a size, "931.5G".
func Bytes(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return strconv.FormatUint(n, 10)
	}
	f, i := float64(n)/1024, 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0") + units[i:i+1]
}

// WriteJSON writes a JSON document. It escapes all characters that cannot be printed; encoding/json
// escapes only those below U+0020.
func WriteJSON(out *bytes.Buffer, v any) error {
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	// Other than line ends, such characters occur only within strings.
	for _, r := range doc.String() {
		switch {
		case r == '\n' || strconv.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(out, `\u%04x`, r)
		}
	}
	return nil
}

// WriteYAML writes the document of WriteJSON as YAML. If it has a character that cannot be printed, it writes JSON, which is YAML too.
func WriteYAML(out *bytes.Buffer, v any) error {
	text, err := yaml.Marshal(v)
	if err != nil || bytes.ContainsFunc(text, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }) {
		return WriteJSON(out, v)
	}
	out.Write(text)
	return nil
}
