package terminal

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Blank is a cell that stays empty. An empty string becomes "-".
const Blank = " "

// Table is a table with aligned columns, which Flush writes.
type Table struct {
	w    *tabwriter.Writer
	rows [][]string // the header first
}

// NewTable returns a table with this header. It is written to a buffer, which never fails.
func NewTable(out *bytes.Buffer, header ...string) *Table {
	t := &Table{w: tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)}
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

// Flush writes the table.
func (t *Table) Flush() {
	for _, row := range t.rows {
		fmt.Fprintln(t.w, strings.Join(row, "\t"))
	}
	_ = t.w.Flush()
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
