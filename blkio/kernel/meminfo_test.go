package kernel

import (
	"strings"
	"testing"
)

func TestParseMemTotal(t *testing.T) {
	for text, want := range map[string]uint64{
		"MemTotal:       32858820 kB\nMemFree:        21001236 kB\n": 32858820 << 10,
		"Other: 1 kB\nMemTotal: 1 kB\n":                              1 << 10,
		"":                                                           0,
		"MemFree: 5 kB\n":                                            0,
		"MemTotal: 5\n":                                              0,
		"MemTotal: -5 kB\n":                                          0,
		"MemTotal: 99999999999999999 kB":                             0,
		strings.Repeat("x", 1<<17) + "\n":                            0,
	} {
		got, err := parseMemTotal(strings.NewReader(text))
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%.40q: %d, %v, want %d", text, got, err, want)
		}
	}
}
