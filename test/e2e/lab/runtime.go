package lab

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// RuntimeConfig returns the runtime's configuration file.
func RuntimeConfig() string {
	if cri.IsCRIO() {
		return "/etc/crio/crio.conf"
	}
	return "/etc/containerd/config.toml"
}

// NeedsContainerd skips a test on CRI-O, and says why.
func NeedsContainerd(t *testing.T, why string) {
	t.Helper()
	if cri.IsCRIO() {
		t.Skip("CRI-O " + why)
	}
}

// ReadConfig returns the runtime's configuration.
func ReadConfig(t *testing.T) string {
	t.Helper()
	config, err := os.ReadFile(RuntimeConfig())
	if err != nil {
		t.Fatal(err)
	}
	return string(config)
}

// ConfigureRuntime starts the runtime again with a configuration.
func ConfigureRuntime(t *testing.T, config string) {
	t.Helper()
	WriteFile(t, RuntimeConfig(), config)
	RestartRuntime(t)
}

// RestartRuntime restarts the runtime, and waits until it answers.
func RestartRuntime(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*Deadline) // in cleanups too
	defer cancel()
	if out, err := exec.CommandContext(ctx, "systemctl", "restart", "engine").CombinedOutput(); err != nil {
		t.Fatalf("restart the runtime: %v: %s", err, out)
	}
	if err := Node.CRI.Ready(ctx); err != nil {
		t.Fatalf("the runtime is not back: %v", err)
	}
}
