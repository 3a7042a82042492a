package cgroupfs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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

func sameAgain(t *testing.T, got, again any, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("what was formatted does not parse: %v", err)
	}
	if diff := cmp.Diff(got, again, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}
