package hostfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestMakeDir verifies that a directory that is made is the owner's alone; one that exists stays as it is.
func TestMakeDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nri", "run")
	if err := FindDir(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before: %v", err)
	}
	for _, mode := range []fs.FileMode{0o700, 0o755} {
		if err := MakeDir(dir); err != nil {
			t.Fatal(err)
		}
		if err := FindDir(dir); err != nil {
			t.Errorf("after: %v", err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != mode {
			t.Errorf("mode %v, want %v (%v)", info.Mode().Perm(), mode, err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
