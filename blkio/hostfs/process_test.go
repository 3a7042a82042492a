package hostfs

import (
	"testing"
	"time"
)

func TestParseStartTime(t *testing.T) {
	const after = " S 1 17 17 0 -1 4194560 845 0 12 0 3 4 0 0 20 0 9 0 "
	for _, tt := range []struct {
		name, line string
		want       time.Duration
		fails      bool
	}{
		{name: "plain", line: "17 (nri-blkio)" + after + "2112 123 456\n", want: 21120 * time.Millisecond},
		{name: "parentheses and blanks in the name", line: "17 (a) S 1 (b c)" + after + "7 123\n", want: 70 * time.Millisecond},
		{name: "cut", line: "17 (nri-blkio)" + after, fails: true},
		{name: "no number", line: "17 (nri-blkio)" + after + "x 1", fails: true},
		{name: "empty", fails: true},
	} {
		if got, err := parseStartTime(tt.line); got != tt.want || (err != nil) != tt.fails {
			t.Errorf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
}

// TestSinceStart verifies that the time grows from the start of this process on.
func TestSinceStart(t *testing.T) {
	first, err := SinceStart()
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	second, err := SinceStart()
	if err != nil || first < 0 || first > time.Hour || second-first < 20*time.Millisecond {
		t.Errorf("%v, then %v, %v", first, second, err)
	}
}
