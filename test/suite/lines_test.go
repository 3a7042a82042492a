package suite

import (
	"bytes"
	"strings"
	"sync"
	"testing"
)

// TestLineWriter verifies that lines of two writers do not mix, also if they are written in pieces.
func TestLineWriter(t *testing.T) {
	var to bytes.Buffer
	var mu sync.Mutex
	a, b := &lineWriter{to: &to, mu: &mu, prefix: "1  "}, &lineWriter{to: &to, mu: &mu, prefix: "2  "}
	for _, write := range []struct {
		w    *lineWriter
		text string
	}{{a, "one "}, {b, "two\nthr"}, {a, "line\n"}, {b, "ee\n"}, {a, "open"}} {
		if n, err := write.w.Write([]byte(write.text)); err != nil || n != len(write.text) {
			t.Fatal(n, err)
		}
	}
	if want := strings.Join([]string{"2  two", "1  one line", "2  three", ""}, "\n"); to.String() != want {
		t.Errorf("the lines are %q, want %q", to.String(), want)
	}
}
