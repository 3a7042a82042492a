package storage

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSwapsHostile has /proc/swaps with lines that are cut off or too large: none of them is
// taken for another device.
func TestSwapsHostile(t *testing.T) {
	for _, tt := range []struct {
		line string
		want []Swap
		ok   bool
	}{
		{"/dev/a partition 18014398509481983 0 -2", []Swap{{Name: "/dev/a", Size: (1<<54 - 1) << 10}}, true},
		{"/dev/a partition 18014398509481984 0 -2", nil, false},
		{"/dev/a partition 1 -1 -2", nil, false},
		{"/dev/a partition 1 0", []Swap{{Name: "/dev/a", Size: 1 << 10}}, true}, // without the priority
		{"/dev/a partition", nil, false},
		{"/dev/a other 1 0 -2", []Swap{{Name: "/dev/a", Size: 1 << 10}}, true},
		{`/a\04 file 1 0 -2`, []Swap{{Name: `/a\04`, File: true, Size: 1 << 10}}, true},
		{`/a\999 file 1 0 -2`, []Swap{{Name: `/a\999`, File: true, Size: 1 << 10}}, true},
		{"", nil, true},
		{strings.Repeat("x", 100_000) + " file 1 0 -2", nil, false},
	} {
		got, err := ParseSwaps(strings.NewReader(swapsHeader + tt.line + "\n"))
		if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != tt.ok {
			t.Errorf("%.80q: %v\n%s", tt.line, err, diff)
		}
	}
}
