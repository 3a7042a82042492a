package lab

import (
	"context"
	"os"
	"os/exec"
	"testing"
)

// RuntimeConfig is containerd's configuration file.
const RuntimeConfig = "/etc/containerd/config.toml"

// ReadConfig returns the runtime's configuration.
func ReadConfig(t *testing.T) string {
	t.Helper()
	config, err := os.ReadFile(RuntimeConfig)
	if err != nil {
		t.Fatal(err)
	}
	return string(config)
}

// ConfigureRuntime starts the runtime again with a configuration.
func ConfigureRuntime(t *testing.T, config string) {
	t.Helper()
	WriteFile(t, RuntimeConfig, config)
	RestartRuntime(t)
}

// RestartRuntime restarts containerd, and waits until it answers.
func RestartRuntime(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*Deadline) // in cleanups too
	defer cancel()
	if out, err := exec.CommandContext(ctx, "systemctl", "restart", "containerd").CombinedOutput(); err != nil {
		t.Fatalf("restart containerd: %v: %s", err, out)
	}
	if err := Node.CRI.Ready(ctx); err != nil {
		t.Fatalf("containerd is not back: %v", err)
	}
}
