package terminal

import (
	"io"
	"strconv"
	"unicode/utf8"
)

// Cleaner writes what another program writes, with characters escaped that cannot be printed, except line ends and tabs.
type Cleaner struct {
	to   io.Writer
	rest []byte // the beginning of a character
}

// NewCleaner returns a writer. What it has written is complete after Close, which does not close to.
func NewCleaner(to io.Writer) *Cleaner { return &Cleaner{to: to} }

// Write implements io.Writer.
func (c *Cleaner) Write(p []byte) (int, error) {
	data, out := append(c.rest, p...), []byte(nil)
	for len(data) > 0 && utf8.FullRune(data) {
		_, n := utf8.DecodeRune(data)
		out, data = appendClean(out, data[:n]), data[n:]
	}
	c.rest = data
	if _, err := c.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes the rest.
func (c *Cleaner) Close() error {
	_, err := c.to.Write(appendClean(nil, c.rest))
	c.rest = nil
	return err
}

// appendClean appends one character, or bytes that are none.
func appendClean(out, char []byte) []byte {
	r, n := utf8.DecodeRune(char)
	isPlain := r == '\n' || r == '\t' || strconv.IsPrint(r)
	if isPlain && (r != utf8.RuneError || n > 1) {
		return append(out, char...)
	}
	q := strconv.QuoteToASCII(string(char))
	return append(out, q[1:len(q)-1]...)
}
