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
