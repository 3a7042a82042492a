// Story is the part of the demo that runs in the node.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

const (
	sharedDir  = "/mnt/shared" // where the disk of both pods is mounted
	policyFile = "/run/demo-policy.yaml"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run starts the plugin, and tells the story.
func run(ctx context.Context, stdout, stderr io.Writer) error {
	fmt.Fprintln(stderr, "demo: starting nri-blkio on the node")
	if _, err := command(ctx, "nri-node-images", filepath.Join(payload.Guest, "iotool.tar")); err != nil {
		return err
	}
	if err := os.WriteFile(policyFile, []byte(noise.PolicyHead), 0o644); err != nil {
		return err
	}
	stop, err := startPlugin(ctx, "--policy", policyFile)
	if err != nil {
		return err
	}
	defer stop()
	number, err := cgroup.Disk(noise.SharedDisk)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(sharedDir, 0o755); err != nil {
		return err
	}
	if _, err := command(ctx, "mount", "/dev/"+noise.SharedDisk, sharedDir); err != nil {
		return err
	}
	client, err := cri.Dial()
	if err != nil {
		return err
	}
	defer client.Close()
	s := story{client: client, disk: noise.Disk{Dir: sharedDir, Number: number}, out: stdout, steps: stderr}
	return s.tell(ctx)
}

// startPlugin starts `nri-blkio run` and waits until it serves the node.
func startPlugin(ctx context.Context, args ...string) (stop func(), err error) {
	log, err := os.CreateTemp("", "nri-blkio-*.log")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"run"}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	}
	for range 300 {
		text, err := os.ReadFile(log.Name())
		if err == nil && bytes.Contains(text, []byte("Synchronized with the runtime")) {
			return stop, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	stop()
	text, _ := os.ReadFile(log.Name())
	return nil, fmt.Errorf("nri-blkio did not register with the runtime:\n%s", text)
}

// program is nri-blkio.
const program = payload.Guest + "/nri-blkio"

// command runs a program, and returns what it prints.
func command(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
