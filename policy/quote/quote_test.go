package quote

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWithin(t *testing.T) {
	tests := []struct {
		in    string
		limit int
		want  string
	}{
		{"", 10, `""`},
		{"abcdefgh", 10, `"abcdefgh"`}, // fits to the byte
		{"abcdefghi", 10, `"abcde"...`},
		{`a"b`, 20, `"a\"b"`},
		{"日本", 14, `"\u65e5\u672c"`},
		{"日本語", 14, `"\u65e5"...`}, // escapes are kept whole
		{"\xff\xff\xff", 11, `"\xff"...`},
	}
	for _, tt := range tests {
		got := Within(tt.in, tt.limit)
		if got != tt.want || len(got) > tt.limit {
			t.Errorf("Within(%q, %d) = %s, want %s", tt.in, tt.limit, got, tt.want)
		}
	}
}

func TestText(t *testing.T) {
	if got := Text(strings.Repeat("x", 100)); len(got) != Most || !strings.HasSuffix(got, `x"...`) {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

func TestName(t *testing.T) {
	for in, want := range map[string]string{
		"limits.x/c.a-b_C9": "limits.x/c.a-b_C9", "a b": `"a b"`, "a\n": `"a\n"`, "": "",
		strings.Repeat("a", 21): `"aaaaaaaaaaaaaaa"...`,
	} {
		if got := Name(in, 20); got != want {
			t.Errorf("Name(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestASCII(t *testing.T) {
	for in, want := range map[string]string{
		`plain "text"`: `plain "text"`, "ü": `\u00fc`, "a\"\x1b": `a"\x1b`,
	} {
		if got := ASCII(in); got != want {
			t.Errorf("ASCII(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestClip(t *testing.T) {
	for in, want := range map[string]string{
		"abcdef": "abcdef", "abcdefg": "abc...", "abüüü": "ab...", "": "",
	} {
		if got := Clip(in, 6); got != want {
			t.Errorf("Clip(%q) = %q, want %q", in, got, want)
		}
	}
}

// FuzzQuote verifies that each result is printable ASCII within its limit, and that a text that is not cut can
// be read back.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a", "日本語", "\xff\"\\", strings.Repeat("ü", 50)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		const limit = 40
		for _, got := range []string{Within(s, limit), Name(s, limit)} {
			if len(got) > limit || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%q: %s", s, got)
			}
		}
		if got := Clip(s, limit); len(got) > limit || utf8.ValidString(s) && !utf8.ValidString(got) {
			t.Errorf("%q: %q", s, got)
		}
	})
}
