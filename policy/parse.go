package policy

import (
	"iter"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

const (
	maxValue   = 64 << 10 // bytes of one annotation
	maxEntries = 256      // of one annotation
)

// target is what an entry limits.
type target struct {
	kind   targetKind
	path   string // of targetPath: absolute and clean
	volume string // of targetVolume: a DNS label
	text   string // as the user wrote it
}

// entry is one entry of a limits annotation.
type entry struct {
	number int // 1-based
	text   string
	target target
	limits blkio.Limits
}

// limitsRequest is one limits annotation. Beside an error it holds the entries
// that are right.
type limitsRequest struct {
	key     string
	entries []entry
	errors  []*Error
	count   int // of all entries, right and wrong
}

// parseLimits parses the value of a limits annotation:
//
//	# the database
//	/var/lib/postgresql rbps=200Mi wbps=50Mi; "/with blank" wiops=2k
//	rootfs wbps=10Mi
func parseLimits(key, value string) *limitsRequest {
	l := &limitsRequest{key: key}
	if len(value) > maxValue {
		l.fail(0, "", &problem{"the value is longer than 64 KiB", "name fewer targets, or use *"})
		return l
	}
	for text := range splitEntries(value) {
		if l.count == maxEntries {
			l.fail(0, "", &problem{"more than 256 entries", "name fewer targets, or use *"})
			break
		}
		l.count++
		e, p := parseEntry(text)
		e.number = l.count
		if p == nil {
			p = l.duplicate(&e)
		}
		if p != nil {
			l.fail(e.number, text, p)
			continue
		}
		l.entries = append(l.entries, e)
	}
	if l.count == 0 {
		l.fail(0, "", &problem{"the value is empty", "write for example " + quote.Text("/data wbps=50Mi") + ", or remove the annotation"})
	}
	return l
}

func (l *limitsRequest) fail(number int, text string, p *problem) {
	l.errors = append(l.errors, &Error{Annotation: l.key, Entry: number, Text: text, Cause: p.cause, Hint: p.hint})
}

// errorOf returns an error about an entry of l.
func (l *limitsRequest) errorOf(en *entry, kind Kind, p *problem) *Error {
	return &Error{Annotation: l.key, Entry: en.number, Text: en.text, Cause: p.cause, Hint: p.hint, Kind: kind}
}

func (l *limitsRequest) duplicate(e *entry) *problem {
	for i := range l.entries {
		o := &l.entries[i]
		if o.target.is(&e.target) {
			return &problem{
				"duplicate target " + quote.Text(e.target.text) + ", first in entry " + strconv.Itoa(o.number),
				"write all its limits into one entry",
			}
		}
	}
	return nil
}

// splitEntries cuts a value at semicolons and newlines, except inside a quoted
// path, and leaves out comments and what is empty.
func splitEntries(value string) iter.Seq[string] {
	return func(yield func(string) bool) {
		lineStart := true
		for {
			value = trimBlanks(value)
			var text string
			if lineStart && strings.HasPrefix(value, "#") {
				_, value, _ = strings.Cut(value, "\n")
			} else {
				end := entryEnd(value)
				text = strings.TrimRight(value[:end], " \t\r")
				lineStart = end < len(value) && value[end] == '\n'
				value = value[min(end+1, len(value)):]
			}
			if text != "" && !yield(text) || value == "" {
				return
			}
		}
	}
}

// entryEnd returns the index of the separator after the entry that s starts
// with, or len(s). A quote that is not closed ends with its line.
func entryEnd(s string) int {
	start := 0
	if strings.HasPrefix(s, `"`) {
		if start = quoteEnd(s); start < 0 {
			if i := strings.IndexByte(s, '\n'); i >= 0 {
				return i
			}
			return len(s)
		}
	}
	for i := start; i < len(s); i++ {
		if s[i] == ';' || s[i] == '\n' {
			return i
		}
	}
	return len(s)
}

// quoteEnd returns the index after the quoted string that s starts with, or
// -1 if it is not closed on its line.
func quoteEnd(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		case '\n':
			return -1
		}
	}
	return -1
}

// parseEntry parses "TARGET key=value...".
func parseEntry(text string) (entry, *problem) {
	e := entry{text: text}
	if !utf8.ValidString(text) {
		return e, &problem{"invalid UTF-8", "write the annotation again"}
	}
	if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\r' }) {
		return e, &problem{"control character in the entry", "remove it"}
	}
	word, rest, p := cutTarget(text)
	if p != nil {
		return e, p
	}
	if e.target, p = parseTarget(word); p != nil {
		return e, p
	}
	for rest = trimBlanks(rest); rest != ""; rest = trimBlanks(rest) {
		word, rest = cutWord(rest)
		if p := e.setKey(word); p != nil {
			return e, p
		}
	}
	if e.limits.IsZero() {
		if strings.Contains(word, "=") {
			word = "/data"
		}
		return e, &problem{"no limit after the target", "write for example " + quote.Text(word+" wbps=50Mi")}
	}
	return e, nil
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

func trimBlanks(s string) string {
	for s != "" && isBlank(s[0]) {
		s = s[1:]
	}
	return s
}

func cutWord(s string) (word, rest string) {
	for i := range len(s) {
		if isBlank(s[i]) {
			return s[:i], s[i:]
		}
	}
	return s, ""
}

// cutTarget cuts the first word off an entry, quoted or not.
func cutTarget(text string) (word, rest string, p *problem) {
	if text[0] != '"' {
		word, rest = cutWord(text)
		return word, rest, nil
	}
	end := quoteEnd(text)
	if end < 0 {
		return "", "", &problem{"unterminated quote", `write \" for a quote inside a quoted path`}
	}
	if end < len(text) && !isBlank(text[end]) {
		return "", "", &problem{"missing blank after the quoted path", "put one after the closing quote"}
	}
	return text[:end], text[end:], nil
}

// setKey parses "wbps=50Mi".
func (e *entry) setKey(word string) *problem {
	name, value, found := strings.Cut(word, "=")
	k, known := blkio.ParseKey(blkio.IOMax, name)
	switch {
	case !found && known:
		return &problem{"key " + quote.Text(name) + " has no value", "write for example " + name + "=" + example(k)}
	case !found && strings.IndexByte(`/"@`, word[0]) >= 0:
		return &problem{quote.Text(word) + " is a second target", `separate entries by ";"; quote a path with blanks`}
	case !found:
		return &problem{quote.Text(word) + " is not key=value", "write for example wbps=50Mi, without blanks in it"}
	case !known:
		p := &problem{cause: "unknown key " + quote.Text(name), hint: spelling.Hint(name, keyNames()...)}
		if p.hint == "" {
			p.hint = "the keys are rbps, wbps, riops and wiops"
		}
		return p
	case e.limits[k] != blkio.Unset:
		return &problem{"duplicate key " + quote.Text(name), "write it once"}
	}
	rate, p := parseRate(k, value)
	if p != nil {
		return p
	}
	e.limits[k] = rate
	return nil
}

func keyNames() []string {
	var names []string
	for k := range blkio.NumLimits {
		names = append(names, k.String())
	}
	return names
}

// parseTarget parses the first word of an entry.
func parseTarget(word string) (target, *problem) {
	t := target{text: word}
	switch {
	case word == "*":
		t.kind = targetStar
		return t, nil
	case word == "rootfs":
		t.kind = targetRootfs
		return t, nil
	case word[0] == '@':
		t.kind = targetVolume
		return t, t.parseVolume()
	case word[0] == '"':
		p := t.unquote(word)
		if p != nil {
			return t, p
		}
	case word[0] == '/':
		t.path = word
	default:
		return t, noTarget(word)
	}
	t.kind = targetPath
	return t, t.clean()
}

// noTarget returns the problem of a first word that is no target, with a guess of what it was meant to be.
func noTarget(word string) *problem {
	p := &problem{cause: "unknown target " + quote.Text(word), hint: spelling.Hint(word, "rootfs")}
	key, _, _ := strings.Cut(word, "=")
	_, isKey := blkio.ParseKey(blkio.IOMax, key)
	switch {
	case strings.HasPrefix(word, "pvc:"):
		return &problem{"pvc: targets are not supported", "write the path of the mount in the container"}
	case word[0] == '#':
		return &problem{"a comment must start its line", `put a newline before "#"`}
	case isKey:
		return &problem{"no target before " + quote.Text(word), `write "/path", @VOLUME, rootfs or * first`}
	case word[0] == '.' || strings.Contains(word, "/"):
		return &problem{"path " + quote.Text(word) + " is not absolute", "write a path in the container that starts with /"}
	case p.hint != "":
	case strings.EqualFold(word, "all") || word == "**":
		p.hint = "write * for all disks"
	default:
		p.hint = `write "/path", @VOLUME, rootfs or *`
	}
	return p
}

// unquote takes the quotes off; a backslash stands before a quote or itself.
func (t *target) unquote(word string) *problem {
	inner := word[1 : len(word)-1]
	var b strings.Builder
	for i := 0; i < len(inner); i++ {
		if inner[i] == '\\' {
			if i++; inner[i] != '"' && inner[i] != '\\' {
				_, n := utf8.DecodeRuneInString(inner[i:])
				return &problem{"invalid escape " + quote.Text(inner[i-1:i+n]), `only \" and \\ are supported`}
			}
		}
		b.WriteByte(inner[i])
	}
	t.path = b.String()
	switch {
	case t.path == "":
		return &problem{"the path is empty", "write a path in the container that starts with /"}
	case t.path == "rootfs" || t.path == "*" || t.path[0] == '@' && isLabel(t.path[1:]):
		return &problem{"target " + t.path + " is quoted", "write it without quotes"}
	case t.path[0] != '/':
		return &problem{"path " + quote.Text(t.path) + " is not absolute", "write a path in the container that starts with /"}
	case strings.ContainsAny(t.path, "\t\r"):
		return &problem{"control character in the entry", "remove it"}
	}
	return nil
}

// clean removes doubled and trailing slashes. It refuses "..": what that means
// depends on symbolic links, which are not resolved here.
func (t *target) clean() *problem {
	for part := range strings.SplitSeq(t.path, "/") {
		if part == ".." {
			return &problem{"path " + quote.Text(t.path) + ` contains ".."`, "write the path without it"}
		}
	}
	if t.path = path.Clean(t.path); t.path == "/" {
		return &problem{`"/" is the root filesystem of the container`, "write rootfs"}
	}
	return nil
}
