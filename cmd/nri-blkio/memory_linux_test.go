package main

import (
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSaveMemory(t *testing.T) {
	const before = 100
	for _, tt := range []struct {
		gogc string
		want int
	}{{"", 10}, {"80", before}} {
		t.Run("GOGC="+tt.gogc, func(t *testing.T) {
			defer debug.SetGCPercent(debug.SetGCPercent(before))
			a := app{getenv: func(string) string { return tt.gogc }}
			if err := a.saveMemory(); err != nil {
				t.Fatal(err)
			}
			if got := debug.SetGCPercent(before); got != before {
				t.Errorf("before the registration the collector works at %d percent, want %d", got, before)
			}
			a.collectOften()
			if got := debug.SetGCPercent(before); got != tt.want {
				t.Errorf("the collector works at %d percent, want %d", got, tt.want)
			}
			if got, err := unix.PrctlRetInt(unix.PR_GET_THP_DISABLE, 0, 0, 0, 0); got != 1 {
				t.Errorf("huge pages are disabled: %d, %v", got, err)
			}
		})
	}
}
