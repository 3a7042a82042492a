package node

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestRunQuietly(t *testing.T) {
	if err := runQuietly(exec.CommandContext(t.Context(), "sh", "-c", "echo fine")); err != nil {
		t.Error(err)
	}
	err := runQuietly(exec.CommandContext(t.Context(), "sh", "-c", "echo why >&2; exit 3"))
	if err == nil || !strings.Contains(err.Error(), "exit status 3\nwhy") {
		t.Errorf("error %v, want the status and what the program said", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	// It ends itself on SIGTERM, which SIGKILL would not let it do.
	err = runQuietly(exec.CommandContext(ctx, "sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.02; done"))
	if err == nil || !strings.Contains(err.Error(), "stopped: exit status 7") {
		t.Errorf("error %v, want that it was stopped", err)
	}
}
