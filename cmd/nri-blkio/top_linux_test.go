package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/wait"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/why"
)

// newTerminal returns a terminal of 80 columns, with the file from which what is written to it can be read.
func newTerminal(t *testing.T, height uint16) (terminal, screen *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0), unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: 80}))
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return terminal, screen
}

// nextFrame returns what is written to a terminal until it is complete.
func nextFrame(t *testing.T, screen *os.File) string {
	t.Helper()
	var text strings.Builder
	buf := make([]byte, 4096)
	for !strings.HasSuffix(text.String(), "\x1b[?7h") {
		n, err := screen.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, text.String())
		}
		text.Write(buf[:n])
	}
	return text.String()
}

// attached counts the observers that are not closed.
type attached struct{ open *atomic.Int32 }

func (attached) Read() (wait.Times, error)     { return wait.Times{Duration: time.Second}, nil }
func (attached) Unknown() map[wait.Cause]error { return nil }
func (a attached) Close() error                { a.open.Add(-1); return nil }

// onTerminal runs a command on a fake host with some files, and on a terminal, until its context ends. use gets what it shows.
func onTerminal(t *testing.T, height uint16, files map[string]string, args []string, use func(screen *os.File)) error {
	t.Helper()
	host := t.TempDir()
	if err := fakeHost(host); err != nil {
		t.Fatal(err)
	}
	fakenode.WriteFiles(t, host, files)
	terminal, screen := newTerminal(t, height)
	var open atomic.Int32
	a := newApp()
	a.stdin, a.stdout, a.stderr, a.getenv, a.openCgroups, a.sample = os.Stdin, terminal, terminal, os.Getenv, cgroupfs.OpenTree, time.Millisecond
	a.attach = func() (why.Observer, error) { open.Add(1); return attached{&open}, nil }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- a.run(ctx, append(args, "--host-root", host)) }()
	use(screen)
	cancel()
	select {
	case err := <-ended:
		if open.Load() != 0 {
			t.Error("the programs are still attached")
		}
		return err
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	return nil
}

// TestTopOnTerminal verifies that top draws again and again on a terminal, no more than fits, and ends with its programs detached.
func TestTopOnTerminal(t *testing.T) {
	err := onTerminal(t, 6, nil, []string{"top", "-d", "1s", "--runtime-endpoint", "none"}, func(screen *os.File) {
		for range 2 {
			frame := nextFrame(t, screen)
			if !strings.HasPrefix(frame, "\x1b[H\x1b[?7lunknown: names of pods") || !strings.Contains(frame, "\x1b[K\r\nPOD ") || strings.Count(frame, "\n") > 5 {
				t.Errorf("got %q", frame)
			}
			if !strings.Contains(frame, "prod/db-0 (the pod) ") && !strings.Contains(frame, "prod/db-0  (the pod)  ") {
				t.Errorf("no row in %q", frame)
			}
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestStatusWatch verifies that status -w draws again, cut at the end of the terminal, and that its exit status is that of the last
// report. What cannot be read is shown, and read again.
func TestStatusWatch(t *testing.T) {
	err := onTerminal(t, 30, map[string]string{"run/nri-blkio/limits.json": "{"}, []string{"status", "-w", "--brief"}, func(screen *os.File) {
		if frame := nextFrame(t, screen); !strings.Contains(frame, "problems: the limits part is not connected") || !strings.Contains(frame, "\r\nnri-blkio: read ") {
			t.Errorf("with an unreadable report: %q", frame)
		}
	})
	if statusOf(err) != exitFindings {
		t.Errorf("exit status %d: %v", statusOf(err), err)
	}
	err = onTerminal(t, 5, map[string]string{"run/nri-blkio/limits.json": "{"}, []string{"status", "-w", "-o", "yaml"}, func(screen *os.File) {
		var text strings.Builder
		for buf := make([]byte, 4096); strings.Count(text.String(), "\nwriteback: null") < 2; {
			n, err := screen.Read(buf)
			if err != nil {
				t.Fatalf("%v after %q", err, text.String())
			}
			text.Write(buf[:n])
		}
		if got := text.String(); strings.Contains(got, "\x1b[H") || !strings.Contains(got, "\n---\r\n") {
			t.Errorf("documents: %q", got)
		}
	})
	if statusOf(err) != exitFindings {
		t.Errorf("exit status %d: %v", statusOf(err), err)
	}
	err = onTerminal(t, 5, nil, []string{"status", "-w"}, func(screen *os.File) {
		for range 2 {
			if frame := nextFrame(t, screen); strings.Count(frame, "\n") != 4 || !strings.Contains(frame, "PART ") || strings.Contains(frame, "TARGET") {
				t.Errorf("on a small terminal: %q", frame)
			}
		}
	})
	if statusOf(err) != exitFindings {
		t.Errorf("exit status %d: %v", statusOf(err), err)
	}
}
