package hostfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSync verifies that only a directory without symlinks in its path is a mountpoint.
func TestSync(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "mnt/file"), "")
	if err := os.Symlink("mnt", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{
		"mnt": nil, "absent": nil, "mnt/file": unix.ENOTDIR, "link": unix.ELOOP, "link/absent": unix.ELOOP,
	} {
		err := Sync(filepath.Join(dir, name))
		if (want == nil) != (err == nil) || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}
