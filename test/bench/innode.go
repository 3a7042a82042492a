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
	"syscall"
	"time"

	"github.com/nri-blkio/nri-blkio/test/payload"
)

// inNode is the half that runs in the node, or the part of it that only names.
// What loads the node most comes last.
func inNode(ctx context.Context, only string, stdout, stderr io.Writer) error {
	for _, part := range []struct {
		name string
		run  func(ctx context.Context, stdout, stderr io.Writer) error
	}{{"cri", benchCRI}, {"reconcile", benchReconcile}, {"run", benchRun}} {
		if only != "" && only != part.name {
			continue
		}
		if err := part.run(ctx, stdout, stderr); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// benchReconcile runs the plugin's own benchmarks on real cgroups.
func benchReconcile(ctx context.Context, stdout, stderr io.Writer) error {
	for _, bench := range pluginBenchmarks {
		cmd := exec.CommandContext(ctx, filepath.Join(payload.Guest, bench.name+".test"),
			"-test.run", "^$", "-test.bench", bench.onNode, "-test.benchtime", "30x")
		cmd.Env = append(os.Environ(), "NRI_BLKIO_BENCH_CGROUPS=/sys/fs/cgroup")
		cmd.Stderr = stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd, err, out)
		}
		if _, err := io.WriteString(stdout, strings.ReplaceAll("\n"+string(out), "\nBenchmark", "\nBenchmarkNode")); err != nil {
			return err
		}
	}
	return nil
}

// instance is one process of `nri-blkio run`.
type instance struct {
	cmd *exec.Cmd
	log *os.File
}

// startup is the time in which a plugin has to take over the node, emulated.
const startup = 2 * time.Minute

// startPlugin returns once the plugin serves the runtime.
func startPlugin(ctx context.Context, args ...string) (*instance, error) {
	log, err := os.CreateTemp("", "nri-blkio-*.log")
	if err != nil {
		return nil, err
	}
	p := &instance{cmd: exec.CommandContext(ctx, filepath.Join(payload.Guest, "nri-blkio"), append([]string{"run"}, args...)...), log: log}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(startup); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if bytes.Contains(p.text(), []byte("Synchronized with the runtime")) {
			return p, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("it did not register with the runtime:\n%s", p.text()), p.stop())
}

func (p *instance) text() []byte {
	data, err := os.ReadFile(p.log.Name())
	if err != nil {
		return []byte(err.Error())
	}
	return data
}

// stop ends the plugin as an operator does.
func (p *instance) stop() error {
	defer os.Remove(p.log.Name())
	defer p.log.Close()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.cmd.Wait()
}

// failures are the lines of the log that say that something did not work.
func (p *instance) failures() error {
	var errs []error
	for line := range strings.Lines(string(p.text())) {
		if strings.Contains(line, "level=error") {
			errs = append(errs, errors.New(strings.TrimSpace(line)))
		}
		if len(errs) == 3 {
			break
		}
	}
	return errors.Join(errs...)
}

// memory reads the sizes of a process from /proc/PID/status, in kB there:
//
//	VmHWM:	   23456 kB
//	RssAnon:	   12345 kB
func (p *instance) memory() (map[string]float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "RssAnon" && name != "VmHWM" {
			continue
		}
		var kib float64
		if _, err := fmt.Sscanf(value, "%g kB", &kib); err != nil {
			return nil, fmt.Errorf("read status, line %q: %w", line, err)
		}
		out[name+"-B"] = kib * 1024
	}
	return out, nil
}
