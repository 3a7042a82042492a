package storage

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// TestResolvePanics: a panic while a path is resolved comes to the caller, who can recover from it. In a
// goroutine of its own it would end the process.
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
			t.Error("the panic is hidden")
		}
	}()
	path, err := h.resolve(ctx, nil, "/link") // which needs a table
	t.Errorf("resolved to %q, %v", path, err)
}
