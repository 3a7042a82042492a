package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
)

// FileOwner is a row of `owner -o json`.
type FileOwner struct {
	State, Cgroup, Namespace, Pod, Container string
	CgroupID                                 uint64
}

// Writer is a cgroup to write in.
type Writer struct {
	t    *testing.T
	Name string // below the root
	ID   uint64
}

// AwaitOwner waits until a file belongs to a writer.
func (w Writer) AwaitOwner(file string) {
	w.t.Helper()
	Within(w.t, time.Minute, filepath.Base(file)+" belongs to its writer", func() error {
		if o := OwnerOf(w.t, file); o.CgroupID != w.ID {
			return fmt.Errorf("the owner is %+v, want cgroup %d", o, w.ID)
		}
		return nil
	})
}

// OwnerOf returns the writeback owner of a file, by the program's command.
func OwnerOf(t *testing.T, file string) FileOwner {
	t.Helper()
	out, err := Command(t, "owner", "-o", "json", file)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Files []FileOwner }
	if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Files) != 1 {
		t.Fatalf("%v in %q", err, out)
	}
	return answer.Files[0]
}

// NewWriter makes a cgroup, which is removed with the test.
func NewWriter(t *testing.T, name string) Writer {
	t.Helper()
	w := Writer{t: t, Name: "e2e-" + name + ".slice"}
	dir := filepath.Join(cgroup.Root, w.Name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Remove)
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	w.ID = st.Ino
	return w
}

// Remove removes the cgroup, unless it is removed.
func (w Writer) Remove() {
	if err := os.Remove(filepath.Join(cgroup.Root, w.Name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Error(err)
	}
}

// Does runs a command in the cgroup, and returns what it prints.
func (w Writer) Does(command ...string) string {
	w.t.Helper()
	out, err := w.tries(command...)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// tries is does for any goroutine.
func (w Writer) tries(command ...string) (string, error) {
	dir, err := os.Open(filepath.Join(cgroup.Root, w.Name))
	if err != nil {
		return "", err
	}
	defer dir.Close()
	cmd := exec.CommandContext(w.t.Context(), command[0], command[1:]...)
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, out)
	}
	return string(out), nil
}

// Writes writes so many MiB from the beginning of a file, in blocks.
func (w Writer) Writes(file string, count int, block string, more ...string) {
	w.t.Helper()
	w.Does(append([]string{"dd", "status=none", "if=/dev/zero", "of=" + file, "bs=" + block, fmt.Sprint("count=", count), "conv=notrunc"}, more...)...)
}
