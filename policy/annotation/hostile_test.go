package annotation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// TestHostileText verifies that each error about any keys and values is one short line of printable ASCII. The
// lines are the same each time, and their number is bounded.
func TestHostileText(t *testing.T) {
	pieces := []string{
		"\x1b[2J", "\u202e\u200b", "\xff\xfe", "\x00", "a\r\nb", `\"`, "'", "%s%n", "..", "=", "@", strings.Repeat("a", 400), strings.Repeat("\xf0\x9f\x99\x88", 100), strings.Repeat("9", 5000), strings.Repeat("e", 64<<10),
	}
	for _, piece := range pieces {
		for _, form := range []string{"~", "/~ wbps=1Mi", `"/~" wbps=1Mi`, "@~ rbps=1", "/data ~", "/data ~=1", "/data wbps=~", "/data wbps=1~", "/data 5~", "/a wbps=1; /~ wbps=x; /~", "~;~\n~"} {
			value := strings.ReplaceAll(form, "~", piece)
			annotations := map[string]string{piece + Domain: value, piece + "." + Domain + "/x": value}
			for _, kind := range Kinds() {
				for _, scope := range append(Scopes(), "container.db", "container."+piece, piece, "") {
					annotations[kind+"."+Domain+"/"+scope] = value
				}
			}
			r := Parse(annotations)
			errs := errorsOf(r, "db")
			if len(errs) == 0 || len(errs) > 100 || !slices.IsSorted(r.Keys()) {
				t.Errorf("%.20q in %q: %d errors, keys %.40q", piece, form, len(errs), r.Keys())
			}
			for i, again := range errorsOf(Parse(annotations), "db") {
				checkLine(t, errs[i].Error())
				if again.Error() != errs[i].Error() {
					t.Errorf("%s, then %s", errs[i], again)
				}
			}
		}
	}
}

// TestCharacters verifies that an entry has no control character. All other characters may be part of a path,
// and no blank but the space, the tab and the carriage return ends a word.
func TestCharacters(t *testing.T) {
	for r := rune(1); r <= 0x3000; r++ {
		text := string(r)
		l := parseLimits(keyDB, "/a"+text+"b wbps=1Mi")
		switch {
		case strings.Contains("\t\r\n; ", text): // a word of two letters is left, without its limit or as another entry
			if len(l.errors) == 0 || len(l.Entries) > 0 {
				t.Errorf("%q: %+v", r, l.Entries)
			}
		case unicode.IsControl(r):
			if len(l.errors) != 1 || l.errors[0].Cause != "control character in the entry" {
				t.Errorf("%q: %v", r, l.errors)
			}
		case len(l.errors) > 0 || len(l.Entries) != 1 || l.Entries[0].Target.Name() != "/a"+text+"b" && r != '/':
			t.Errorf("%q: %+v, %v", r, l.Entries, l.errors)
		default:
			for _, line := range []string{l.Entries[0].Target.Where(), l.ErrorOf(&l.Entries[0], NoMount, &Problem{"no", ""}).Error()} {
				checkLine(t, line)
			}
		}
		if q := parseLimits(keyDB, `"/a`+text+`" wbps=1Mi`); (len(q.errors) > 0) != (unicode.IsControl(r) || r == '"' || r == '\\') {
			t.Errorf("%q in quotes: %+v, %v", r, q.Entries, q.errors)
		}
	}
}

// TestErrorBounds verifies that a line is bounded for each size of its parts, and the parts that fit are whole.
func TestErrorBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	text := func() string {
		piece := []string{"a", "ü", "\x00", `"`, "\xff", " ", "\u2028"}[random.IntN(7)]
		return strings.Repeat(piece, []int{0, 1, 30, 39, 61, 110, 111, 400, 10_000}[random.IntN(9)])
	}
	for range 500 {
		e := &Error{Identity: Identity{From: Origin{Annotation: text()}, Entry: []int{0, 1, 256}[random.IntN(3)], Text: text()}, Cause: text(), Hint: text()}
		line := e.Error()
		checkLine(t, line)
		if again := e.Error(); again != line || !strings.HasPrefix(line, "nri-blkio: ") || e.Entry > 0 && !strings.Contains(line, fmt.Sprint(": entry ", e.Entry, " ")) {
			t.Errorf("%s, then %s", line, again)
		}
		if short := len(e.From.Annotation)+len(e.Text)+len(e.Cause)+len(e.Hint) < 25; short && strings.Contains(line, "...") {
			t.Errorf("cut: %s", line)
		}
	}
}
