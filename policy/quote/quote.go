// Package quote formats the text of tenants for messages: in one line of printable ASCII,
// with a bounded number of bytes.
package quote

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Most is the largest size of a piece of text inside a message, in bytes.
const Most = 60

const dots = "..."

// Text quotes a piece of text for a message, see Within and Most.
func Text(s string) string { return Within(s, Most) }

// Within quotes s as strconv.QuoteToASCII does, in at most limit bytes. If it cuts s, "..."
// follows the closing quote. It does not cut an escape sequence.
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

// Name returns a name that a tenant may have written, such as the key of an annotation. A
// short name of plain characters is returned unchanged, any other one is quoted.
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

// ASCII escapes characters that are not printable ASCII. It does not escape quotes.
func ASCII(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return s
	}
	q := strconv.QuoteToASCII(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// Clip shortens text to at most limit bytes, "..." included. It does not cut a rune.
func Clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-len(dots)], "") + dots
}
