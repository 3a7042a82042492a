package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

const (
	startup  = 5 * time.Minute  // for the kubelet's pods to run, emulated
	settle   = 2 * time.Second  // of I/O before measuring
	duration = 8 * time.Second  // of measuring, at least
	hurry    = 90 * time.Second // for measuring at most
)

// result is one line of the table.
type result struct {
	pod
	inForce  string
	measured cgroup.Measurement
}

// inNode is the part that runs inside the node.
func inNode(ctx context.Context, stdout io.Writer) error {
	if err := command(ctx, "nri-node-images", filepath.Join(payload.Guest, "iotool.tar")); err != nil {
		return err
	}
	if err := os.WriteFile(policyFile, []byte(noise.PolicyHead+noise.Policy), 0o644); err != nil {
		return err
	}
	stop, err := startPlugin(ctx, "--policy", policyFile)
	if err != nil {
		return err
	}
	defer stop()
	if err := drop(); err != nil {
		return err
	}
	if err := command(ctx, "systemctl", "start", "kubelet"); err != nil {
		return err
	}
	client, err := cri.Dial()
	if err != nil {
		return err
	}
	defer client.Close()
	results, err := measureAll(ctx, client)
	if err != nil {
		return err
	}
	printTable(stdout, results)
	if err := checkLimits(results); err != nil {
		return err
	}
	neighbours, err := beside(ctx, client)
	if err != nil {
		return err
	}
	printNeighbour(stdout, neighbours)
	return checkNeighbour(neighbours)
}

// startPlugin starts `nri-blkio run` and waits until it serves the node.
func startPlugin(ctx context.Context, args ...string) (stop func(), err error) {
	log, err := os.CreateTemp("", "nri-blkio-*.log")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(payload.Guest, "nri-blkio"), append([]string{"run"}, args...)...)
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

// measureAll waits for each pod and measures it, all at the same time.
func measureAll(ctx context.Context, client *cri.Client) ([]result, error) {
	results, errs := make([]result, len(pods)), make([]error, len(pods))
	var wg sync.WaitGroup
	for i, p := range pods {
		wg.Go(func() {
			results[i], errs[i] = measure(ctx, client, p)
			if errs[i] != nil {
				errs[i] = fmt.Errorf("pod %s: %w", p.name, errs[i])
			}
		})
	}
	wg.Wait()
	return results, errors.Join(errs...)
}

func measure(ctx context.Context, client *cri.Client, p pod) (result, error) {
	dir, err := await(ctx, client, p)
	if err != nil {
		return result{}, err
	}
	device, err := cgroup.Disk(p.disk)
	if err != nil {
		return result{}, err
	}
	limits, err := dir.IOMax()
	if err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, hurry, fmt.Errorf("measured for %v", hurry))
	defer cancel()
	m, err := dir.Measure(ctx, device, "wbytes", settle, duration)
	return result{pod: p, inForce: limits[device], measured: m}, err
}

// await returns the cgroup of a pod's writer once it runs.
func await(ctx context.Context, client *cri.Client, p pod) (cgroup.Dir, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startup, fmt.Errorf("it does not run after %v", startup))
	defer cancel()
	// The kubelet appends the node's name to the name of a static pod.
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	for {
		found, err := client.Running(ctx, "io.kubernetes.pod.name", p.name+"-"+strings.ToLower(host))
		if writer := found["writer"]; err == nil && writer != nil {
			return cgroup.Dir(writer.Cgroup), nil
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return "", errors.Join(context.Cause(ctx), err)
		}
	}
}

func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
