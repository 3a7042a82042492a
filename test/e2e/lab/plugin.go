package lab

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
	LogServing  = "Synchronized with the runtime"
	LogStandby  = "Standing by"
	LogReloaded = "Reloaded the node policy"
	LogRefused  = "Rejected the new node policy"
)

// Resync is the shortest that the program takes, so that what the reconciler has to repair is repaired soon.
const Resync = time.Second

// Deadline bounds what takes the program and the runtime a second elsewhere, and what takes a limit 20 s.
const Deadline = 90 * time.Second

// Instance is one process of `nri-blkio run`.
type Instance struct {
	Cmd  *exec.Cmd
	Log  *LogBuffer
	Done chan struct{} // closed once the process has ended
}

// StartPlugin starts the program and waits until it serves the node. It ends
// with the test, whose failure shows its log.
func StartPlugin(t *testing.T, args ...string) *Instance {
	t.Helper()
	p := Launch(t, args...)
	p.Await(t, LogServing, 1)
	return p
}

// Launch is StartPlugin without the wait.
func Launch(t *testing.T, args ...string) *Instance {
	t.Helper()
	return LaunchAs(t, nil, args...)
}

// LaunchAs is launch by way of another program.
func LaunchAs(t *testing.T, by []string, args ...string) *Instance {
	t.Helper()
	args = slices.Concat(by, []string{filepath.Join(Node.Payload, "nri-blkio"), "run", "--resync", Resync.String()}, args)
	p := &Instance{
		Cmd:  exec.Command(args[0], args[1:]...),
		Log:  &LogBuffer{},
		Done: make(chan struct{}),
	}
	p.Cmd.Stdout, p.Cmd.Stderr = p.Log, p.Log
	// A test binary that is killed must not leave a plugin on the node.
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.Cmd.Wait() // its status is in ProcessState
		close(p.Done)
	}()
	t.Cleanup(func() {
		p.Kill(t)
		if n := p.Count("Recovered from a panic"); n > 0 { // the program goes on, and a test would not see it
			t.Errorf("nri-blkio has panicked, and logged that %d times", n)
		}
		if t.Failed() {
			t.Logf("end of the log of nri-blkio %s:\n%s", strings.Join(args, " "), p.Log.Tail())
		}
	})
	return p
}

// Await waits until the log has the text so many times.
func (p *Instance) Await(t *testing.T, text string, times int) {
	t.Helper()
	Eventually(t, "the log of nri-blkio has "+text, func() error {
		select {
		case <-p.Done:
			t.Fatalf("nri-blkio ended with %v:\n%s", p.Cmd.ProcessState, p.Log)
		default:
		}
		if p.Count(text) < times {
			return fmt.Errorf("the log has it %d times, want %d", p.Count(text), times)
		}
		return nil
	})
}

// Count is how often the log has the text.
func (p *Instance) Count(text string) int { return strings.Count(p.Log.String(), text) }

// Signal sends the process a signal, unless it has ended.
func (p *Instance) Signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("%v nri-blkio: %v", s, err)
	}
}

// Wait waits for the end of a process that got a signal, and returns its exit status.
func (p *Instance) Wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.Done:
	case <-time.After(Deadline):
		t.Fatalf("nri-blkio has not ended in %v", Deadline)
	}
	return p.Cmd.ProcessState.ExitCode()
}

// Kill ends the process as a crash would.
func (p *Instance) Kill(t *testing.T) {
	t.Helper()
	p.Signal(t, syscall.SIGKILL)
	p.Wait(t)
}

// Command runs another of the program's commands.
func Command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(Node.Payload, "nri-blkio"), args...)
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

// LogBuffer is written by the process and read by the test.
type LogBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *LogBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *LogBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *LogBuffer) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Reset()
}

// Tail returns the end of the log, for failures: the tests of refusals log a lot.
func (b *LogBuffer) Tail() string {
	lines := strings.SplitAfter(b.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-60):], "")
}

// Eventually waits until check has no error.
func Eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	Within(t, Deadline, what, check)
}

// Within is eventually with a deadline of its own.
func Within(t *testing.T, limit time.Duration, what string, check func() error) {
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
		time.Sleep(min(limit/900, time.Second/2)) // looking has its cost, too
	}
}
