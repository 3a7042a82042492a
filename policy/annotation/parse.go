package annotation

import (
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// Bounds of one annotation.
const (
	MaxValue   = 64 << 10 // bytes
	MaxEntries = 256
)

// Entry is one entry of an annotation.
type Entry struct {
	Number int // 1-based; 0 for a weight without a target
	Target Target
	Limits blkio.Limits          // of an annotation of limits
	Weight uint32                // of an annotation of weights, otherwise 0
	paired [blkio.NumLimits]bool // set by "bps" or "iops"
	bursts [blkio.NumLimits]blkio.Burst
	text   string
}

// List is one annotation of limits or of weights. Entries has the valid ones, even if others
// are invalid.
type List struct {
	From    Origin
	Entries []Entry
	errors  []*Error
	count   int // of all entries, right and wrong
}

// parseLimits parses the value of a limits annotation:
//
//	# the database
//	/var/lib/postgresql rbps=200Mi wbps=50Mi; "/with blank" wiops=2k
//	rootfs wbps=10Mi
func parseLimits(key, value string) *List {
	return parseList(Origin{Annotation: key}, value, "/data wbps=50Mi", (*Entry).parseLimits)
}

// parseList parses entries of a target and the text after it, which parse reads.
func parseList(from Origin, value, example string, parse func(e *Entry, rest string) *Problem) *List {
	l := &List{From: from}
	if len(value) > MaxValue {
		l.fail(0, "", &Problem{"the value is longer than 64 KiB", "name fewer targets, or use *"})
		return l
	}
	for text := range splitEntries(value) {
		if l.count == MaxEntries {
			l.fail(0, "", &Problem{"more than 256 entries", "name fewer targets, or use *"})
			break
		}
		l.count++
		if p := l.add(text, parseTarget, parse); p != nil {
			l.fail(l.count, text, p)
		}
	}
	if l.count == 0 {
		l.fail(0, "", &Problem{"the value is empty", "write for example " + quote.Text(example) + ", or remove the annotation"})
	}
	return l
}

func (l *List) fail(number int, text string, p *Problem) {
	l.errors = append(l.errors, New(Identity{From: l.From, Entry: number, Text: text}, p))
}

// ErrorOf returns an error about an entry of l.
func (l *List) ErrorOf(en *Entry, reason Reason, p *Problem) *Error {
	return New(Identity{From: l.From, Entry: en.Number, Text: en.text, Reason: reason}, p)
}

func duplicate(of []Entry, e *Entry) *Problem {
	for i := range of {
		o := &of[i]
		if o.Target.Kind == TargetDisk && !o.sharesKey(e) {
			continue // the order of entries that match one disk decides, so one entry is not always enough
		}
		if o.Target.is(&e.Target) {
			hint := "write all its limits into one entry"
			if e.Weight != 0 {
				hint = "write one weight for it"
			}
			return &Problem{"duplicate target " + quote.Text(e.Target.Text) + ", first in entry " + strconv.Itoa(o.Number), hint}
		}
	}
	return nil
}

// splitEntries cuts a value at semicolons and newlines, except inside a quoted path. It leaves out comments and
// empty entries.
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
	if i := strings.IndexAny(s[start:], ";\n"); i >= 0 {
		return start + i
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

func (l *List) add(text string, target func(word string) (Target, *Problem), parse func(e *Entry, rest string) *Problem) *Problem {
	l.Entries = append(l.Entries, Entry{text: text, Number: l.count})
	last := len(l.Entries) - 1
	e := &l.Entries[last]
	p := e.parse(target, parse)
	if p == nil {
		p = duplicate(l.Entries[:last], e)
	}
	if p != nil {
		l.Entries = l.Entries[:last]
	}
	return p
}

// parse parses the text of an entry: a target, which target reads, and what is after it, which parse reads.
func (e *Entry) parse(target func(word string) (Target, *Problem), parse func(e *Entry, rest string) *Problem) *Problem {
	if p := checkText(e.text); p != nil {
		return p
	}
	word, rest, p := cutTarget(e.text)
	if p != nil {
		return p
	}
	if e.Target, p = target(word); p != nil {
		return p
	}
	return parse(e, trimBlanks(rest))
}

// checkText returns the problem of an entry with characters that no entry may have.
func checkText(text string) *Problem {
	if !utf8.ValidString(text) {
		return &Problem{"invalid UTF-8", "write the annotation again"}
	}
	if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\r' }) {
		return &Problem{"control character in the entry", "remove it"}
	}
	return nil
}

// rateParser parses the value of a key.
type rateParser func(k blkio.Key, value string) (blkio.Amount, *Problem)

// addLimits parses "key=value...", and adds the limits to those of the entry.
func (e *Entry) addLimits(rest string, parse rateParser) *Problem {
	var word string
	for ; rest != ""; rest = trimBlanks(rest) {
		word, rest = cutWord(rest)
		if p := e.setKey(word, parse); p != nil {
			return p
		}
	}
	return nil
}

// parseLimits parses "key=value...".
func (e *Entry) parseLimits(rest string) *Problem {
	if p := e.addLimits(rest, parseRate); p != nil {
		return p
	}
	if e.Limits.IsZero() && e.bursts == [blkio.NumLimits]blkio.Burst{} {
		target := e.Target.Text
		if strings.Contains(target, "=") {
			target = "/data"
		}
		return &Problem{"no limit after the target", "write for example " + quote.Text(target+" wbps=50Mi")}
	}
	return e.checkBursts()
}

const blanks = " \t\r"

func trimBlanks(s string) string { return strings.TrimLeft(s, blanks) }

func cutWord(s string) (word, rest string) {
	if i := strings.IndexAny(s, blanks); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// cutTarget cuts the first word off an entry, quoted or not.
func cutTarget(text string) (word, rest string, p *Problem) {
	if text[0] != '"' {
		word, rest = cutWord(text)
		return word, rest, nil
	}
	end := quoteEnd(text)
	if end < 0 {
		return "", "", &Problem{"unterminated quote", `write \" for a quote inside a quoted path`}
	}
	if end < len(text) && strings.IndexByte(blanks, text[end]) < 0 {
		return "", "", &Problem{"missing blank after the quoted path", "put one after the closing quote"}
	}
	return text[:end], text[end:], nil
}

// setKey parses "wbps=50Mi".
func (e *Entry) setKey(word string, parse rateParser) *Problem {
	name, value, found := strings.Cut(word, "=")
	keys := KeysOf(name)
	switch {
	case isBurst(name):
		return e.setBurst(name, value)
	case keys != nil && value == "":
		return &Problem{"key " + quote.Text(name) + " has no value", "write for example " + name + "=" + example(keys[0])}
	case !found && strings.IndexByte(`/"@`, word[0]) >= 0:
		return &Problem{quote.Text(word) + " is a second target", `separate entries by ";"; quote a path with blanks`}
	case !found:
		return &Problem{quote.Text(word) + " is not key=value", "write for example wbps=50Mi, without blanks in it"}
	case keys == nil:
		return unknownKey(name)
	}
	if p := e.repeats(name); p != nil {
		return p
	}
	rate, p := parse(keys[0], value)
	if p != nil {
		return p
	}
	e.set(name, rate)
	return nil
}

func parseTarget(word string) (Target, *Problem) {
	t := Target{Text: word}
	switch {
	case word == "*":
		t.Kind = TargetStar
		return t, nil
	case word == "rootfs":
		t.Kind = TargetRootfs
		return t, nil
	case word[0] == '@':
		t.Kind = TargetVolume
		return t, t.parseVolume()
	case word[0] == '"':
		p := t.unquote(word)
		if p != nil {
			return t, p
		}
	case word[0] == '/':
		t.Path = word
	default:
		return t, noTarget(word)
	}
	t.Kind = TargetPath
	return t, t.clean()
}

// noTarget returns the problem of a first word that is no target, with a guess of the intended target.
func noTarget(word string) *Problem {
	p := &Problem{Cause: "unknown target " + quote.Text(word), Hint: spelling.Hint(word, "rootfs")}
	key, _, _ := strings.Cut(word, "=")
	switch {
	case isDisk(word): // it could reach disks of others, and a tenant does not know the node's disks
		return &Problem{"disk: targets are only for classes of the node policy", `write "/path", @VOLUME, rootfs or *`}
	case word[0] == '#':
		return &Problem{"a comment must start its line", `put a newline before "#"`}
	case KeysOf(key) != nil:
		return &Problem{"no target before " + quote.Text(word), `write "/path", @VOLUME, rootfs or * first`}
	case word[0] == '.' || strings.Contains(word, "/"):
		return &Problem{"path " + quote.Text(word) + " is not absolute", "write a path in the container that starts with /"}
	case p.Hint != "":
	case strings.EqualFold(word, "all") || word == "**":
		p.Hint = "write * for all disks"
	default:
		p.Hint = `write "/path", @VOLUME, rootfs or *`
	}
	return p
}

// unquote takes the quotes off; a backslash stands before a quote or itself.
func (t *Target) unquote(word string) *Problem {
	inner := word[1 : len(word)-1]
	var b strings.Builder
	for i := 0; i < len(inner); i++ {
		if inner[i] == '\\' {
			if i++; inner[i] != '"' && inner[i] != '\\' {
				_, n := utf8.DecodeRuneInString(inner[i:])
				return &Problem{"invalid escape " + quote.Text(inner[i-1:i+n]), `only \" and \\ are supported`}
			}
		}
		b.WriteByte(inner[i])
	}
	t.Path = b.String()
	switch {
	case t.Path == "":
		return &Problem{"the path is empty", "write a path in the container that starts with /"}
	case t.isWord():
		return &Problem{"target " + t.Path + " is quoted", "write it without quotes"}
	case t.Path[0] != '/':
		return &Problem{"path " + quote.Text(t.Path) + " is not absolute", "write a path in the container that starts with /"}
	case strings.ContainsAny(t.Path, "\t\r"):
		return &Problem{"control character in the entry", "remove it"}
	}
	return nil
}

// isWord reports whether a quoted path is the text of another target.
func (t *Target) isWord() bool {
	return t.Path == "rootfs" || t.Path == "*" || t.Path[0] == '@' && IsLabel(t.Path[1:])
}

// clean removes doubled and trailing slashes. It refuses "..", because its meaning depends on symbolic links,
// which are not resolved here.
func (t *Target) clean() *Problem {
	written := t.Path
	if t.Path = path.Clean(written); t.Path != written && slices.Contains(strings.Split(written, "/"), "..") {
		return &Problem{"path " + quote.Text(written) + ` contains ".."`, "write the path without it"}
	}
	if t.Path == "/" {
		return &Problem{`"/" is the root filesystem of the container`, "write rootfs"}
	}
	return nil
}
