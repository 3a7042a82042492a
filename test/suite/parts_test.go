package suite

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestParts verifies that each e2e test is in exactly one part, and that no part takes much longer than the
// other.
func TestParts(t *testing.T) {
	tests, err := e2eTests("../e2e")
	if err != nil {
		t.Fatal(err)
	}
	for name := range seconds {
		if !slices.Contains(tests, name) {
			t.Errorf("seconds has %s, which is not a test", name)
		}
	}
	took := map[string]int{}
	all := parts(tests, 2)
	for _, test := range tests {
		in := 0
		for _, part := range all {
			if regexp.MustCompile(part).MatchString(test) {
				in++
				took[part] += max(seconds[test], fewSeconds)
			}
		}
		if in != 1 {
			t.Errorf("%s is in %d parts, want 1", test, in)
		}
	}
	if a, b := took[all[0]], took[all[1]]; max(a, b)-min(a, b) > 60 {
		t.Errorf("the parts take %d and %d s, want a difference of at most 60 s", a, b)
	}
	if _, err := e2eTests(t.TempDir()); err == nil {
		t.Error("a directory without tests is no error")
	}
}

func TestAddOutcome(t *testing.T) {
	o := outcome{node: "n", passed: 2, took: time.Minute, storage: []string{"a"}}
	o.add(outcome{node: "n", passed: 3, failed: 1, failures: []string{"TestX"}, took: 2 * time.Minute, storage: []string{"b"}})
	want := outcome{node: "n", passed: 5, failed: 1, failures: []string{"TestX"}, took: 2 * time.Minute, storage: []string{"a", "b"}}
	if diff := cmp.Diff(want, o, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
}

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
