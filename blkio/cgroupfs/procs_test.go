package cgroupfs

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestProcessesInParts verifies that the kernel returns as much of cgroup.procs with a read as fits into a
// page. A FIFO does the same if each part is written after the one before was read.
func TestProcessesInParts(t *testing.T) {
	h, _ := newHierarchy(t, map[string]string{"pod/io.max": ""})
	fifo := filepath.Join(h.dir, "pod/cgroup.procs")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- writeInParts(fifo, "1\n2\n", "3\n", "40\n") }()
	pids, err := h.Cgroup("pod").Processes()
	if diff := cmp.Diff([]int{1, 2, 3, 40}, pids); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	checkError(t, <-written, "")
}

func writeInParts(fifo string, parts ...string) error {
	f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, part := range parts {
		if _, err := f.WriteString(part); err != nil {
			return err
		}
		for unread := 1; unread > 0; {
			if unread, err = unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ); err != nil {
				return err
			}
			runtime.Gosched()
		}
	}
	return nil
}
