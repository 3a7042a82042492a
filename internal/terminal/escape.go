// Package terminal writes text that tenants and devices chose. On a terminal it is escaped, so that no
// character of it moves the cursor, changes the colour, or changes the order of text.
package terminal

import (
	"errors"
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
