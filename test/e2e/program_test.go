package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// What the program logs once it serves, and while another instance does.
const (
	logServing  = "Synchronized with the runtime"
	logStandby  = "Standing by"
	logReloaded = "Reloaded the node policy"
	logRefused  = "Rejected the new node policy"
)

// resync is short, so that what the reconciler has to repair is repaired soon.
const resync = 2 * time.Second

// deadline bounds what takes the program and the runtime a second elsewhere.
const deadline = 45 * time.Second

// instance is one process of `nri-blkio run`.
type instance struct {
	cmd  *exec.Cmd
	log  *logBuffer
	done chan struct{} // closed once the process has ended
}

// startPlugin starts the program and waits until it serves the node. It ends
// with the test, whose failure shows its log.
func startPlugin(t *testing.T, args ...string) *instance {
	t.Helper()
	p := launch(t, args...)
	p.await(t, logServing, 1)
	return p
}

// launch is startPlugin without the wait.
func launch(t *testing.T, args ...string) *instance {
	t.Helper()
	return launchAs(t, nil, args...)
}

// launchAs is launch by way of another program.
func launchAs(t *testing.T, by []string, args ...string) *instance {
	t.Helper()
	args = slices.Concat(by, []string{filepath.Join(node.payload, "nri-blkio"), "run", "--resync", resync.String()}, args)
	p := &instance{
		cmd:  exec.Command(args[0], args[1:]...),
		log:  &logBuffer{},
		done: make(chan struct{}),
	}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	// A test binary that is killed must not leave a plugin on the node.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // its status is in ProcessState
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill(t)
		if n := p.count("Recovered from a panic"); n > 0 { // the program goes on, and a test would not see it
			t.Errorf("nri-blkio has panicked, and logged that %d times", n)
		}
		if t.Failed() {
			t.Logf("end of the log of nri-blkio %s:\n%s", strings.Join(args, " "), p.log.tail())
		}
	})
	return p
}

// await waits until the log has the text so many times.
func (p *instance) await(t *testing.T, text string, times int) {
	t.Helper()
	eventually(t, "the log of nri-blkio has "+text, func() error {
		select {
		case <-p.done:
			t.Fatalf("nri-blkio ended with %v:\n%s", p.cmd.ProcessState, p.log)
		default:
		}
		if p.count(text) < times {
			return fmt.Errorf("the log has it %d times, want %d", p.count(text), times)
		}
		return nil
	})
}

// count is how often the log has the text.
func (p *instance) count(text string) int { return strings.Count(p.log.String(), text) }

func (p *instance) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("%v nri-blkio: %v", s, err)
	}
}

// wait waits for the end of a process that got a signal, and returns its exit status.
func (p *instance) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(deadline):
		t.Fatalf("nri-blkio has not ended in %v", deadline)
	}
	return p.cmd.ProcessState.ExitCode()
}

// kill ends the process as a crash would.
func (p *instance) kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	p.wait(t)
}

// command runs another of the program's commands.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(node.payload, "nri-blkio"), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if isReport(args, err) {
		err = nil
	}
	if err != nil {
		t.Logf("nri-blkio %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), err
}

// isReport reports whether a command succeeded though it exits with 1: status does so if its
// output contains findings. With --strict and --ready the exit status is the answer.
func isReport(args []string, err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && exit.ExitCode() == 1 && args[0] == "status" &&
		!slices.ContainsFunc(args, func(arg string) bool {
			return strings.HasPrefix(arg, "--strict") || strings.HasPrefix(arg, "--ready")
		})
}

// logBuffer is written by the process and read by the test.
type logBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logBuffer) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Reset()
}

// tail returns the end of the log, for failures: the tests of refusals log a lot.
func (b *logBuffer) tail() string {
	lines := strings.SplitAfter(b.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-60):], "")
}

// eventually waits until check has no error.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	within(t, deadline, what, check)
}

// within is eventually with a deadline of its own.
func within(t *testing.T, limit time.Duration, what string, check func() error) {
	t.Helper()
	end := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s: %v", limit, what, err)
		}
		time.Sleep(limit / 450) // looking has its cost, too
	}
}
