package policy

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Kind selects the setting of the node policy that applies to an error.
type Kind uint8

const (
	// Invalid is a request that cannot be parsed, contradicts itself, or is
	// out of bounds.
	Invalid Kind = iota
	// Unenforceable is a request that is well formed, but nothing on this
	// node could carry it out.
	Unenforceable
	// Internal is a failure of this program to find out; it may pass.
	Internal
)

// String returns the name of the kind in the node policy.
func (k Kind) String() string {
	return [...]string{"invalid", "unenforceable", "internal"}[k]
}

// Error is what is wrong with one annotation. Its fields hold the tenant's
// text as it was written; Error quotes it.
type Error struct {
	Annotation string // the full key
	Entry      int    // 1-based; 0 where the annotation as a whole is meant
	Text       string // of the entry, or of the value
	Cause      string // printable ASCII, tenant text in it quoted
	Hint       string // what to write instead, or ""
	Kind       Kind
}

const (
	// maxLine bounds the whole message, which must survive the runtime, the
	// kubelet and an Event. The runtime puts some 130 bytes before it.
	maxLine = 400
	// maxKey leaves the longest valid key whole: the prefix, "container."
	// and a name of 63 bytes.
	maxKey = 110
	// minText is what is left of the entry's text where the cause is long.
	minText = 40
	// maxQuoted bounds each piece of tenant text inside a cause or a hint.
	maxQuoted = 60
)

// Error returns one line of printable ASCII, at most 400 bytes, which is the
// same for the same fields.
func (e *Error) Error() string {
	head := "nri-blkio: " + name(e.Annotation, maxKey) + ": "
	if e.Entry > 0 {
		head += "entry " + strconv.Itoa(e.Entry) + " "
	}
	tail := ascii(e.Cause)
	if e.Hint != "" {
		tail += " (" + ascii(e.Hint) + ")"
	}
	if e.Entry == 0 && e.Text == "" {
		return head + cut(tail, maxLine-len(head))
	}
	tail = ": " + cut(tail, maxLine-len(head)-minText-len(": "))
	return head + quote(e.Text, maxLine-len(head)-len(tail)) + tail
}

// Concerns reports whether the error is about what s names.
func (e *Error) Concerns(s Source) bool {
	return s.Kind == FromAnnotation && e.Annotation == s.Name && (e.Entry == 0 || e.Entry == s.Entry)
}

// name returns an annotation key as it is if it is plain and short, and else
// quoted: the key of an unknown scope is tenant text too.
func name(s string, limit int) string {
	if len(s) > limit {
		return quote(s, limit)
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			c == '.', c == '-', c == '_', c == '/':
		default:
			return quote(s, limit)
		}
	}
	return s
}

// quote is strconv.QuoteToASCII within limit bytes; text that is cut ends in
// "..." after the closing quote. Escapes are kept whole.
func quote(s string, limit int) string {
	const dots = `"...`
	var b strings.Builder
	b.WriteByte('"')
	fits := 1 // bytes of b that leave room for dots
	for len(s) > 0 {
		_, n := utf8.DecodeRuneInString(s)
		q := strconv.QuoteToASCII(s[:n])
		b.WriteString(q[1 : len(q)-1])
		s = s[n:]
		if b.Len()+len(dots) <= limit {
			fits = b.Len()
		} else if b.Len()+1 > limit {
			return b.String()[:fits] + dots
		}
	}
	return b.String() + `"`
}

// quoted is quote for a piece of tenant text inside a cause or a hint.
func quoted(s string) string { return quote(s, maxQuoted) }

// ascii escapes what is not printable ASCII, and leaves quotes alone.
func ascii(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return s
	}
	q := strconv.QuoteToASCII(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// cut shortens ASCII text to limit bytes, "..." included.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return s[:limit-len("...")] + "..."
}

// problem is the part of an Error that a parser of one piece of text knows.
type problem struct {
	cause, hint string
}

// String returns the cause, and the hint in parentheses.
func (p *problem) String() string {
	if p.hint == "" {
		return p.cause
	}
	return p.cause + " (" + p.hint + ")"
}
