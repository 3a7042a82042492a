package node

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ready := filepath.Join(t.TempDir(), "ready")
	go func() {
		for err := os.ErrNotExist; err != nil && ctx.Err() == nil; _, err = os.Stat(ready) {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	// It ends itself on SIGTERM, which SIGKILL would not let it do.
	err = runQuietly(exec.CommandContext(ctx, "sh", "-c", `trap 'exit 7' TERM; : >"$0"; while :; do sleep 0.02; done`, ready))
	if err == nil || !strings.Contains(err.Error(), "stopped: exit status 7") {
		t.Errorf("error %v, want that it was stopped", err)
	}
}
