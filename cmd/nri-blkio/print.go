package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// safe makes a tenant's or a disk's text harmless on a terminal: text with
// control or formatting characters, or no UTF-8, comes quoted.
func safe(s string) string {
	if !utf8.ValidString(s) {
		return strconv.QuoteToASCII(s)
	}
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return strconv.QuoteToASCII(s)
		}
	}
	return s
}

// oneLine is safe for text of our own, which has its tenant parts quoted: only
// what cannot be printed is escaped.
func oneLine(s string) string {
	if safe(s) == s {
		return s
	}
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// errorLines returns a line of safe text for each error that errors.Join put
// together.
func errorLines(err error) []string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && err.Error() == errors.Join(joined.Unwrap()...).Error() {
		var out []string
		for _, e := range joined.Unwrap() {
			out = append(out, errorLines(e)...)
		}
		return out
	}
	// Errors joined further down are in one text, a line each.
	return []string{oneLine(strings.ReplaceAll(err.Error(), "\n", "; "))}
}

// table prints aligned columns. Cells go through safe.
type table struct {
	w *tabwriter.Writer
}

func newTable(out io.Writer, header ...string) *table {
	t := &table{tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)}
	t.row(header...)
	return t
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		if c == "" {
			c = "-"
		}
		cells[i] = safe(c)
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t *table) flush() error { return t.w.Flush() }

// notes prints lines with a common prefix, "warning: ...".
func notes(out io.Writer, prefix string, lines []string) {
	for _, l := range lines {
		fmt.Fprintf(out, "%s: %s\n", prefix, oneLine(l))
	}
}

// formatBytes shows a size, "931.5G".
func formatBytes(n uint64) string {
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

// printJSON escapes characters that a terminal could act on or that change the
// order of text: encoding/json escapes control characters below U+0020 only.
func printJSON(out io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(out, escapeJSON(b.String()))
	return err
}

// escapeJSON replaces what cannot be printed in a JSON document by escapes of
// JSON. Such characters occur within strings only, but for the line ends.
func escapeJSON(doc string) string {
	var b strings.Builder
	b.Grow(len(doc))
	for _, r := range doc {
		switch {
		case r == '\n' || strconv.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// output is the flag -o.
type output string

func (o *output) add(cmd *cobra.Command) {
	*o = "table"
	cmd.Flags().VarP(o, "output", "o", "table or json")
}

func (o *output) String() string { return string(*o) }

// Type names the flag's value in help texts.
func (o *output) Type() string { return "format" }

// Set checks the value as the flags are parsed.
func (o *output) Set(s string) error {
	if s != "table" && s != "json" {
		return fmt.Errorf("unknown format %q (write table or json)", s)
	}
	*o = output(s)
	return nil
}

func (o *output) json() bool { return *o == "json" }
