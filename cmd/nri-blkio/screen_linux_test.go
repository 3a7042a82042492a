package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestScreenCuts verifies that a screen says what it does not show.
func TestScreenCuts(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb\nc\n":       "a b c",
		"a\nb\nc\nd\n":    "a b and 2 more lines: enlarge the terminal, or use --once",
		"a\nb\nc\nd\ne\n": "a b and 3 more lines: enlarge the terminal, or use --once",
	} {
		var out bytes.Buffer
		if err := (screen{out: &out, width: 80, height: 4}).show([]byte(text)); err != nil {
			t.Fatal(err)
		}
		got := strings.NewReplacer("\x1b[H\x1b[?7l", "", "\x1b[K\n", " ", "\x1b[J\x1b[?7h", "").Replace(out.String())
		if strings.TrimSpace(got) != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
