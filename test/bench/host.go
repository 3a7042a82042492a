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
	"strconv"
	"strings"
	"time"
)

// quiet is the load average below which figures are taken: a machine is never
// all alone.
const (
	quiet     = 2.0
	quietPoll = 10 * time.Second
)

// onHost runs the plugin's benchmarks on the kernel of this machine.
func onHost(ctx context.Context, o options, r *report, stderr io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("5,000 mounts in a namespace of their own take root; -only node does without")
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := buildPluginTests(ctx, dir); err != nil {
		return err
	}
	before, err := waitQuiet(ctx, o.patience, stderr)
	if err != nil {
		return err
	}
	for _, of := range pluginBenchmarks {
		for _, bench := range of.onHost {
			cmd := exec.CommandContext(ctx, filepath.Join(dir, of.name+".test"), "-test.run", "^$", "-test.bench", bench[0], "-test.benchtime", bench[1])
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%v: %w\n%s", cmd, err, out)
			}
			if err := r.figures.read(io.TeeReader(bytes.NewReader(out), stderr)); err != nil {
				return err
			}
		}
	}
	after, err := loadAverage()
	if err != nil {
		return err
	}
	r.describeHost(before, after)
	return nil
}

// waitQuiet waits until others leave this machine alone, or patience ends.
func waitQuiet(ctx context.Context, patience time.Duration, stderr io.Writer) (float64, error) {
	end := time.Now().Add(patience)
	for {
		load, err := loadAverage()
		if err != nil || load < quiet {
			return load, err
		}
		if time.Now().After(end) {
			fmt.Fprintf(stderr, "bench: the machine is still busy, load average %.2f\n", load)
			return load, nil
		}
		fmt.Fprintf(stderr, "bench: waiting for a quiet machine, load average %.2f\n", load)
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(quietPoll):
		}
	}
}

// loadAverage is that of the last minute, from /proc/loadavg:
//
//	0.20 0.18 0.12 1/80 11206
func loadAverage() (float64, error) {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(data), " ")
	return strconv.ParseFloat(first, 64)
}

// cpuModel is the first "model name : ..." of /proc/cpuinfo.
func cpuModel() string {
	data, _ := os.ReadFile("/proc/cpuinfo") // of no consequence
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown CPU"
}

func kernelRelease() string {
	data, _ := os.ReadFile("/proc/sys/kernel/osrelease") // of no consequence
	return strings.TrimSpace(string(data))
}
