package cgroupfs

import (
	"testing"
)

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("error\n  got  %s\n  want %s", got, want)
	}
}
