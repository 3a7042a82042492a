package podevent

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestReasons verifies that each reason has what Kubernetes requires, in its form.
func TestReasons(t *testing.T) {
	for _, r := range Reasons() {
		if f := r.Facts(); !regexp.MustCompile(`^Blkio[A-Z][A-Za-z]+$`).MatchString(string(r)) || f.Type != Normal && f.Type != Warning || f.Action == "" {
			t.Errorf("%s: %+v", r, f)
		}
	}
	if f := Reason("Other").Facts(); f != (Facts{}) {
		t.Errorf("an unknown reason has %+v", f)
	}
	if !NoMemoryLimit.Facts().IsFact || Refused.Facts().IsFact {
		t.Error("a missing memory limit lasts, and rejections occur again")
	}
}

// TestText verifies that a note of any text is one line of printable ASCII within the bound, and that the text of an error
// stays as it is.
func TestText(t *testing.T) {
	const line = `container db: nri-blkio: limits.x/c: entry 1 "/a \"b wbps=1\"...": unknown key "wpbs"`
	for in, want := range map[string]string{
		line: line, "a\nb\x1b[2J": `a\nb\x1b[2J`, "ü\xff\u2028\u202e": `\u00fc\xff\u2028\u202e`,
		strings.Repeat("x", 2000): strings.Repeat("x", MaxNote-3) + "...", strings.Repeat("x", MaxNote): strings.Repeat("x", MaxNote),
	} {
		if got := Text(in); got != want {
			t.Errorf("%.40q: %q, want %q", in, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\n\xff\u202e\x00")
	f.Add(strings.Repeat("\xff", 3*MaxNote))
	f.Fuzz(func(t *testing.T, s string) {
		if got := Text(s); s != "" && !isNote(got) {
			t.Errorf("%q", got)
		}
	})
}

// TestObjectName verifies that the name of an object is one that Kubernetes takes, and that it depends on all that makes an
// event another one.
func TestObjectName(t *testing.T) {
	isName := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	seen := map[string]string{}
	for _, pod := range []Pod{{testUID, "prod", "db-0"}, {other, "prod", "db-0"}, {testUID, "prod", strings.Repeat("a", 235) + ".-b"}, {testUID, "prod", strings.Repeat("a", 253)}} {
		for _, e := range []Event{{Reason: Refused, Key: KeyOf("a")}, {Reason: Refused, Key: KeyOf("b")}, {Reason: Changed, Key: KeyOf("a")}} {
			name := pod.ObjectName(&e)
			e.Count, e.First, e.Note = 9, time.Unix(1, 0), "c" // another process may count from one again, with other amounts
			if what := fmt.Sprint(pod, e); seen[name] != "" || !isName.MatchString(name) || len(name) > 253 || name != pod.ObjectName(&e) {
				t.Errorf("%s: %s, the same as %s", what, name, seen[name])
			} else {
				seen[name] = what
			}
		}
	}
}

// TestKeyOf verifies that a key depends on each part and on their number, and has the form of keys.
func TestKeyOf(t *testing.T) {
	seen := map[Key]bool{}
	for _, parts := range [][]string{{}, {""}, {"", ""}, {"a"}, {"a", "b"}, {"ab"}, {"a b"}, {`a" "b`}} {
		key := KeyOf(parts...)
		if seen[key] || !isKey(key) || key != KeyOf(parts...) {
			t.Errorf("%q has the key %s", parts, key)
		}
		seen[key] = true
	}
}
