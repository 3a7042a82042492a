package lab

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
)

// MustMkdir makes a directory, and those above it.
func MustMkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

// WriteFile writes a file, which also may be one of the kernel.
func WriteFile(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

const policyHead = noise.PolicyHead

// PolicyFile writes a node policy.
func PolicyFile(t *testing.T, body string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	WritePolicy(t, file, body)
	return file
}

// WritePolicy writes a node policy to a file.
func WritePolicy(t *testing.T, file, body string) {
	t.Helper()
	WriteFile(t, file, policyHead+body)
}
