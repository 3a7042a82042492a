// Package quote shows text of tenants in one line of printable ASCII, in a bounded number
// of bytes.
package quote

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Most bounds each piece of text inside a message, in bytes.
const Most = 60

const dots = "..."

// Text quotes a piece of text inside a message.
func Text(s string) string { return Within(s, Most) }

// Within is strconv.QuoteToASCII within limit bytes. Text that is cut ends in "..." after
// the closing quote. Escapes are kept whole.
func Within(s string, limit int) string {
	const end = `"` + dots
	var b strings.Builder
	b.WriteByte('"')
	fits := 1 // bytes of b that leave room for end
	for len(s) > 0 {
		_, n := utf8.DecodeRuneInString(s)
		q := strconv.QuoteToASCII(s[:n])
		b.WriteString(q[1 : len(q)-1])
		s = s[n:]
		if b.Len()+len(end) <= limit {
			fits = b.Len()
		} else if b.Len()+1 > limit {
			return b.String()[:fits] + end
		}
	}
	return b.String() + `"`
}

// Name returns a name, such as the key of an annotation, unchanged if it is plain and short,
// and otherwise quoted: tenants write names as well.
func Name(s string, limit int) string {
	if len(s) > limit {
		return Within(s, limit)
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			c == '.', c == '-', c == '_', c == '/':
		default:
			return Within(s, limit)
		}
	}
	return s
}

// ASCII escapes what is not printable ASCII, and leaves quotes alone.
func ASCII(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return s
	}
	q := strconv.QuoteToASCII(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// Clip shortens text to limit bytes, "..." included, without cutting a rune.
func Clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-len(dots)], "") + dots
}
