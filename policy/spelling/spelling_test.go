package spelling

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	words := []string{"rbps", "wbps", "riops", "wiops"}
	for written, want := range map[string]string{
		"wpbs": "wbps", "wbp": "wbps", "rbsp": "rbps", "WIOPS": "wiops", "wbps": "wbps",
		"iops": "", "bps": "", "xxxx": "", "": "", "write_bps": "",
	} {
		if got, ok := Nearest(written, words...); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v, want %q", written, got, ok, want)
		}
	}
	long := strings.Repeat("/a", maxBytes/2)
	if _, ok := Nearest(long, long[1:]); !ok {
		t.Error("words of 128 bytes are not compared")
	}
	if got, ok := Nearest(long+"b", long); ok {
		t.Errorf("a word of 129 bytes is near to %q", got)
	}
	if got, ok := Nearest(long, long+"b"); ok {
		t.Errorf("a candidate of 129 bytes is near: %q", got)
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"ab", "ba", 1}, {"abc", "ab", 1}, {"ab", "cd", 2}, {"abcdef", "ghijkl", 3}, {"a", "abcdef", 3}} {
		if got := distance(tt.a, tt.b, 2); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

// TestDistanceBand compares the band with the whole matrix.
func TestDistanceBand(t *testing.T) {
	word := func() string {
		b := make([]byte, rand.IntN(9))
		for i := range b {
			b[i] = "ab"[rand.IntN(2)]
		}
		return string(b)
	}
	for range 20000 {
		a, b := word(), word()
		for limit := range 4 {
			if got, want := distance(a, b, limit), min(plainDistance(a, b), limit+1); got != want {
				t.Fatalf("distance(%q, %q, %d) = %d, want %d", a, b, limit, got, want)
			}
		}
	}
}

// plainDistance computes the whole matrix.
func plainDistance(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	cost := 1
	if a[len(a)-1] == b[len(b)-1] {
		cost = 0
	}
	a1, b1 := a[:len(a)-1], b[:len(b)-1]
	if cost == 0 {
		return plainDistance(a1, b1) // never worse
	}
	d := min(plainDistance(a1, b)+1, plainDistance(a, b1)+1, plainDistance(a1, b1)+1)
	if len(a) > 1 && len(b) > 1 && a[len(a)-1] == b[len(b)-2] && a[len(a)-2] == b[len(b)-1] {
		d = min(d, plainDistance(a[:len(a)-2], b[:len(b)-2])+1)
	}
	return d
}

func TestHint(t *testing.T) {
	for written, want := range map[string]string{
		"wpbs": `did you mean "wbps"?`, "wbp": `did you mean "wbps"?`, "rbsp": `did you mean "rbps"?`, "WIOPS": `did you mean "wiops"?`,
		"iops": "", "bps": "", "xxxx": "", "": "", "write_bps": "",
	} {
		if got := Hint(written, "rbps", "wbps", "riops", "wiops"); got != want {
			t.Errorf("Hint(%q) = %q, want %q", written, got, want)
		}
	}
}

// TestHintIsBounded verifies that long texts are not compared.
func TestHintIsBounded(t *testing.T) {
	long := strings.Repeat("/a", 64)
	if got := Hint(long[:128], long[:127]); got == "" {
		t.Error("nothing for 128 bytes")
	}
	if got := Hint(long+"b", long) + Hint(long, long+"b"); got != "" {
		t.Errorf("got %q", got)
	}
}
