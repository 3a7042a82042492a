package storage

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// TestResolvePanics verifies that a panic in resolve happens in the goroutine of the caller, which can recover.
// A panic in another goroutine would end the process.
func TestResolvePanics(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("elsewhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	h, err := openHostRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	ctx, cancel := context.WithCancel(t.Context()) // without an end it needs no goroutine
	defer cancel()
	defer func() {
		if recover() == nil {
			t.Error("resolve did not panic")
		}
	}()
	path, err := h.resolve(ctx, nil, "/link") // which needs a table
	t.Errorf("resolve returned %q, %v, want a panic", path, err)
}
