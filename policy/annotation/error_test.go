package annotation

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A cause that is too long gives way, so that the entry can still be told.
func TestLongCause(t *testing.T) {
	e := &Error{Annotation: keyDB, Entry: 3, Text: strings.Repeat("x", 500), Cause: strings.Repeat("y\n", 300), Hint: "never seen"}
	line := e.Error()
	checkLine(t, line)
	if len(line) != maxLine || !strings.Contains(line, `"xxxxxxxxxx`) || !strings.HasSuffix(line, "...") {
		t.Errorf("%d bytes: %s", len(line), line)
	}
}

// TestCut: a text of the limit stays, and a longer one says that it is cut.
func TestCut(t *testing.T) {
	for in, want := range map[string]string{"": "", "abcd": "abcd", "abcde": "abcde", "abcdef": "ab..."} {
		if got := cut(in, 5); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestKind: the names are those of the node policy.
func TestKind(t *testing.T) {
	for kind, want := range map[Kind]string{Invalid: "invalid", Unenforceable: "unenforceable", Internal: "internal"} {
		if got := kind.String(); got != want {
			t.Errorf("%d: %s, want %s", kind, got, want)
		}
	}
}

func TestProblem(t *testing.T) {
	for want, p := range map[string]Problem{"a": {Cause: "a"}, "a (b)": {Cause: "a", Hint: "b"}} {
		if got := p.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestErrorOf: an error has the place of its entry.
func TestErrorOf(t *testing.T) {
	l := parseLimits(keyDB, "/a wbps=1Mi; /b wbps=2Mi")
	got := l.ErrorOf(&l.Entries[1], Unenforceable, &Problem{"no", "yes"})
	want := &Error{Annotation: keyDB, Entry: 2, Text: "/b wbps=2Mi", Cause: "no", Hint: "yes", Kind: Unenforceable}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
