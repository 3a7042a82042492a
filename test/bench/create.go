package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

const (
	alternations = 10
	creates      = 3 // of a turn: short, since the machine may drift
)

// The annotations of the pods here: a limit on a volume of one container, and
// a default for all.
func annotations() map[string]string {
	return map[string]string{
		"limits.blkio.noderesource.dev/container.db": "/data rbps=100Mi wbps=50Mi",
		"limits.blkio.noderesource.dev/containers":   "* wbps=20Mi",
		"kubernetes.io/config.source":                "api",
		"kubernetes.io/config.seen":                  "2026-01-01T00:00:00.000000000Z",
		"checksum/config":                            strings.Repeat("0123456789abcdef", 4),
		"prometheus.io/scrape":                       "true",
		"kubectl.kubernetes.io/restartedAt":          "2026-01-01T00:00:00Z",
	}
}

// benchCRI creates and starts containers in turns with and without the plugin,
// in one pod. Without the plugin its annotations have no effect.
func benchCRI(ctx context.Context, stdout, _ io.Writer) error {
	archive := filepath.Join(payload.Guest, "iotool.tar")
	if out, err := exec.CommandContext(ctx, "nri-node-images", archive).CombinedOutput(); err != nil {
		return fmt.Errorf("import %s: %w\n%s", archive, err, out)
	}
	client, err := cri.Dial()
	if err != nil {
		return err
	}
	defer client.Close()
	pod, err := client.RunPod(ctx, cri.PodConfig{Name: "bench", UID: "bench-1", Annotations: annotations()})
	if err != nil {
		return err
	}
	if _, err := turn(ctx, pod, 2); err != nil { // what is slow once only
		return err
	}
	var without, with []time.Duration
	for i := range alternations {
		order := []bool{false, true}
		if i%2 == 1 { // so that a drift of the machine favours neither
			slices.Reverse(order)
		}
		for _, plugin := range order {
			into := &without
			if plugin {
				into = &with
			}
			took, err := turnWith(ctx, pod, plugin)
			if err != nil {
				return err
			}
			*into = append(*into, took...)
		}
	}
	a, b := percentile(without, 50), percentile(with, 50)
	line(stdout, "NodeCRI", len(with), map[string]float64{
		"without-p50-µs": micros(a), "with-p50-µs": micros(b), "ratio": float64(b) / float64(a),
	})
	return pod.Remove(ctx)
}

func turnWith(ctx context.Context, pod *cri.Pod, plugin bool) ([]time.Duration, error) {
	if !plugin {
		return turn(ctx, pod, creates)
	}
	p, err := startPlugin(ctx)
	if err != nil {
		return nil, err
	}
	took, err := turn(ctx, pod, creates)
	return took, errors.Join(err, p.failures(), p.stop())
}

func turn(ctx context.Context, pod *cri.Pod, creates int) ([]time.Duration, error) {
	const data = "/mnt/ext4/bench-cri"
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	cfg := cri.ContainerConfig{Name: "db", Mounts: []cri.Mount{{Host: data, Path: "/data"}}}
	var took []time.Duration
	for range creates {
		began := time.Now()
		k, err := pod.Run(ctx, cfg)
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
		if err := k.Remove(ctx); err != nil {
			return nil, err
		}
	}
	return took, nil
}
