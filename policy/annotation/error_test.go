package annotation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLongCause verifies that a cause that is too long is cut, so that the entry can still be recognized.
func TestLongCause(t *testing.T) {
	e := &Error{Identity: Identity{From: Origin{Annotation: keyDB}, Entry: 3, Text: strings.Repeat("x", 500)}, Cause: strings.Repeat("y\n", 300), Hint: "never seen"}
	line := e.Error()
	checkLine(t, line)
	if len(line) != maxLine || !strings.Contains(line, `"xxxxxxxxxx`) || !strings.HasSuffix(line, "...") {
		t.Errorf("%d bytes: %s", len(line), line)
	}
}

// TestLongLines verifies that a line has at most 400 bytes for any text of tenants. It still has the number of
// the entry, the beginning of its text and that of the cause.
func TestLongLines(t *testing.T) {
	long := strings.Repeat("ü", 300)
	for _, tt := range []struct {
		name  string
		err   Error
		parts []string
	}{
		{"a long key", Error{Identity: Identity{From: Origin{Annotation: "limits." + Domain + "/" + long}}, Cause: "cause", Hint: "hint"}, []string{`nri-blkio: "limits.blkio.noderesource.dev/\u00fc`, `: cause (hint)`}},
		{"the longest valid key", Error{Identity: Identity{From: Origin{Annotation: "limits." + Domain + "/container." + strings.Repeat("a", 63)}, Entry: 1, Text: "/a"}, Cause: "cause"}, []string{strings.Repeat("a", 63) + `: entry 1 "/a": cause`}},
		{"a long entry", Error{Identity: Identity{From: Origin{Annotation: keyDB}, Entry: 7, Text: "/data/" + long}, Cause: "cause", Hint: "hint"}, []string{`: entry 7 "/data/\u00fc`, `"...: cause (hint)`}},
		{"a long cause", Error{Identity: Identity{From: Origin{Annotation: keyDB}, Entry: 7, Text: "/data/" + long}, Cause: "cause " + long, Hint: "hint"}, []string{`: entry 7 "/data/\u00fc`, `: cause \u00fc`, "..."}},
		{"a long value", Error{Identity: Identity{From: Origin{Annotation: keyDB}, Text: long}, Cause: "cause"}, []string{keyDB + `: "\u00fc`, `"...: cause`}},
		{"a long cause of the whole annotation", Error{Identity: Identity{From: Origin{Annotation: keyDB}}, Cause: long}, []string{keyDB + `: \u00fc`, "..."}},
		{"control characters", Error{Identity: Identity{From: Origin{Annotation: keyDB}, Entry: 1, Text: "/a\x1b[2J"}, Cause: "c\n\x1b", Hint: "h\u202e"}, []string{`"/a\x1b[2J": c`, `h\u202e`}},
	} {
		line := tt.err.Error()
		checkLine(t, line)
		rest := line
		for _, part := range tt.parts {
			i := strings.Index(rest, part)
			if i < 0 {
				t.Fatalf("%s: no %q in %s", tt.name, part, line)
			}
			rest = rest[i+len(part):]
		}
	}
}

// TestErrorOrder verifies that the mistakes of a container are in the order of their keys and entries, and the
// same for each order of the map.
func TestErrorOrder(t *testing.T) {
	annotations := map[string]string{
		keyDB: "/a wbps=x; /b wbps=1Mi; /a wbps=; /b wbps=1Mi", keyEach: "/c", keyTotal: "",
		"weight." + Domain + "/container.db": "0", "class." + Domain + "/container.db": "Slow",
		"limits." + Domain + "/pod": "", "nope." + Domain + "/x": "", "class." + Domain + "/a b": "",
	}
	want := []string{
		"class.blkio.noderesource.dev/a b, unknown scope", "limits.blkio.noderesource.dev/pod, invalid scope", "nope.blkio.noderesource.dev/x, unknown annotation",
		"limits.blkio.noderesource.dev/container.db 1, invalid number", "limits.blkio.noderesource.dev/container.db 3, key", "limits.blkio.noderesource.dev/container.db 4, duplicate target",
		"weight.blkio.noderesource.dev/container.db, invalid weight", "class.blkio.noderesource.dev/container.db, invalid class name",
		"limits.blkio.noderesource.dev/containers 1, no limit after the target", "limits.blkio.noderesource.dev/pod-total, the value is empty",
	}
	for range 5 {
		var got []string
		for _, e := range errorsOf(Parse(annotations), "db") {
			where := e.From.Annotation
			if e.Entry > 0 {
				where += fmt.Sprint(" ", e.Entry)
			}
			cause, _, _ := strings.Cut(e.Cause, ` "`)
			got = append(got, where+", "+cause)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("-want +got:\n%s", d)
		}
	}
}

// TestKind verifies that the names are those of the node policy.
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

// TestErrorOf verifies that an error has the place of its entry.
func TestErrorOf(t *testing.T) {
	l := parseLimits(keyDB, "/a wbps=1Mi; /b wbps=2Mi")
	got := l.ErrorOf(&l.Entries[1], NoDisk, &Problem{"no", "yes"})
	want := &Error{Identity: Identity{From: Origin{Annotation: keyDB}, Entry: 2, Text: "/b wbps=2Mi", Reason: NoDisk}, Cause: "no", Hint: "yes"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
