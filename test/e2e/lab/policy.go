package lab

import (
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
)

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
