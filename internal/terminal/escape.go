// Package terminal writes text that tenants and devices chose. On a terminal it is escaped, so that no
// character of it moves the cursor, changes the colour, or changes the order of text.
package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Escape returns text that a tenant or a device chose, in quotes if it has control or formatting
// characters or is not UTF-8.
func Escape(s string) string {
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

// EscapeLine returns a message of this program, whose foreign parts are quoted already, as one
// line without quotes. Only characters that cannot be printed are escaped.
func EscapeLine(s string) string {
	if Escape(s) == s {
		return s
	}
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// Lines writes each line of another program as [EscapeLine] returns it.
type Lines struct {
	To   io.Writer
	rest []byte // of a line that is not complete yet
}

// Write implements io.Writer.
func (l *Lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, isComplete := bytes.Cut(l.rest, []byte("\n"))
		if !isComplete && len(line) < 1<<20 { // a longer one is cut, for the memory
			return len(p), nil
		}
		l.rest = rest
		if _, err := fmt.Fprintln(l.To, EscapeLine(string(line))); err != nil {
			return 0, err
		}
	}
}

// Close ends the last line.
func (l *Lines) Close() (err error) {
	if len(l.rest) > 0 {
		_, err = l.Write([]byte("\n"))
	}
	return err
}

// ErrorLines returns an escaped line for each of the errors that errors.Join has joined.
func ErrorLines(err error) []string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && err.Error() == errors.Join(joined.Unwrap()...).Error() {
		var out []string
		for _, e := range joined.Unwrap() {
			out = append(out, ErrorLines(e)...)
		}
		return out
	}
	// A wrapped error may have joined errors in its text, with a line for each.
	return []string{EscapeLine(strings.ReplaceAll(err.Error(), "\n", "; "))}
}

// Shorten returns at most limit characters of an escaped text: both ends, which is where names
// differ.
func Shorten(s string, limit int) string {
	runes := []rune(s)
	if len(runes) <= limit {
		return s
	}
	head := limit / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(limit-head-1):])
}
