package hostfs

import (
	"strings"
	"testing"
)

func TestMemTotal(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  uint64
		err   string
	}{
		{name: "read", files: map[string]string{"proc/meminfo": "MemTotal:        2048 kB\nMemFree:          100 kB\n"}, want: 2 << 20},
		{name: "no procfs"},
		{name: "no meminfo", files: map[string]string{"proc/swaps": ""}},
		{name: "no MemTotal", files: map[string]string{"proc/meminfo": "MemFree: 100 kB\n"}, err: "/proc/meminfo: missing line MemTotal"},
		{name: "no number", files: map[string]string{"proc/meminfo": "MemTotal: x kB\n"}, err: "/proc/meminfo: error parsing file: "},
		{name: "no directory", files: map[string]string{"proc": ""}, err: "/proc/meminfo: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := node(t, tt.files, nil).MemTotal()
			if got != tt.want || (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %d, %v, want %d, %q", got, err, tt.want, tt.err)
			}
		})
	}
}
