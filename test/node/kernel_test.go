package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKernelModulesDir verifies that a kernel of another version than the requested one is an error, as after a
// Debian suite has moved on to a later kernel.
func TestKernelModulesDir(t *testing.T) {
	for _, tt := range []struct{ kernel, version, err string }{
		{"6.1", "6.1.0-55-cloud-amd64", ""},
		{"6.1-affected", "6.1.0-50-cloud-amd64", ""},
		{"7.2", "7.2.13+deb14-cloud-amd64", ""},
		{"7.2", "7.3.1+deb14-cloud-amd64", "Debian unstable has 7.3.1+deb14-cloud-amd64 now"},
		{"6.1", "6.12.107+deb13-cloud-amd64", "Debian bookworm has 6.12.107"},
	} {
		dir := t.TempDir()
		want := filepath.Join(dir, "lib/modules", tt.version)
		if err := os.MkdirAll(want, 0o755); err != nil {
			t.Fatal(err)
		}
		got, err := kernelModulesDir(dir, tt.kernel)
		if tt.err == "" && (err != nil || got != want) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s in %s: got %q, %v, want error %q", tt.kernel, tt.version, got, err, tt.err)
		}
	}
	if _, err := kernelModulesDir(t.TempDir(), "6.1"); err == nil {
		t.Error("no modules: no error")
	}
}
