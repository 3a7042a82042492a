package terminal

import (
	"testing"
	"unicode/utf8"
)

func TestBar(t *testing.T) {
	for _, tt := range []struct {
		done  float64
		label string
		width int
		want  string
	}{
		{0, "start", 80, "[                    ]   0 % start"},
		{0.4, "reads", 80, "[########            ]  40 % reads"},
		{1, "\x1b[2J", 80, `[####################] 100 % "\x1b[2J"`},
		{0.4, "random reads", 22, ""},
		{0.4, "reads", 0, "…"},
	} {
		got := Bar(tt.done, tt.label, tt.width)
		if tt.want != "" && got != tt.want {
			t.Errorf("%g %q: got %q, want %q", tt.done, tt.label, got, tt.want)
		}
		if n := utf8.RuneCountInString(got); n >= max(2, tt.width) {
			t.Errorf("%q has %d columns of %d", got, n, tt.width)
		}
	}
	if got := Rewrite("x"); got != "\r\x1b[Kx" {
		t.Errorf("%q", got)
	}
}
