package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
)

// These tests read the state of the kernel themselves. The writers are processes in cgroups that
// the tests create, which takes less time than containers.

// writer is a cgroup to write in.
type writer struct {
	t    *testing.T
	name string // below the root
	id   uint64
}

func newWriter(t *testing.T, name string) writer {
	t.Helper()
	w := writer{t: t, name: "e2e-" + name + ".slice"}
	dir := filepath.Join(cgroup.Root, w.name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.remove)
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	w.id = st.Ino
	return w
}

func (w writer) remove() {
	if err := os.Remove(filepath.Join(cgroup.Root, w.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Error(err)
	}
}

// does runs a command in the cgroup, and returns what it prints.
func (w writer) does(command ...string) string {
	w.t.Helper()
	out, err := w.tries(command...)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// tries is does for any goroutine.
func (w writer) tries(command ...string) (string, error) {
	dir, err := os.Open(filepath.Join(cgroup.Root, w.name))
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

// writes writes so many MiB from the beginning of a file, in blocks.
func (w writer) writes(file string, count int, block string, more ...string) {
	w.t.Helper()
	w.does(append([]string{"dd", "status=none", "if=/dev/zero", "of=" + file, "bs=" + block, fmt.Sprint("count=", count), "conv=notrunc"}, more...)...)
}

// filesystemsWithOwners are those that the tests have a volume of.
var filesystemsWithOwners = []string{"ext4", "xfs", "btrfs"}
