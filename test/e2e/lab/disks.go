package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// SCSIDisks are those that the module makes with the parameters.
func SCSIDisks(t *testing.T, n int, parameters ...string) []string {
	t.Helper()
	Administer(t, append([]string{"modprobe", "scsi_debug", "delay=0"}, parameters...)...)
	t.Cleanup(func() {
		// udev opens a disk for a moment after each change of it.
		Eventually(t, "scsi_debug is not in use", func() error { return Runs("modprobe", "-r", "scsi_debug") })
	})
	var found []string
	Eventually(t, "the disks are there", func() (err error) {
		found, err = filepath.Glob("/sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*/block/*")
		if err == nil && len(found) != n {
			err = fmt.Errorf("the kernel has %d disks of scsi_debug, want %d", len(found), n)
		}
		for i, disk := range found {
			found[i] = filepath.Base(disk)
			if err == nil { // the disk's directory is there before it has a name and a number
				_, err = cgroup.Disk(found[i])
			}
		}
		return err
	})
	return found
}

// Administer runs a program of the node, in cleanups, too, when the test's own
// context has ended.
func Administer(t *testing.T, command ...string) {
	t.Helper()
	if err := Runs(command...); err != nil {
		t.Fatal(err)
	}
}

// Runs runs a program of the node, with a deadline.
func Runs(command ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, out)
	}
	return nil
}

// DiskBehind is the kernel's name of the block device that a path leads to.
func DiskBehind(t *testing.T, device string) string {
	t.Helper()
	path, err := filepath.EvalSymlinks(device)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Base(path)
}

// MakeDevice makes a device node in a running container, as KubeVirt does. number is that of the device.
func MakeDevice(t *testing.T, k *cri.Container, path, number string) {
	t.Helper()
	pids, err := cgroup.Dir(k.Cgroup).PIDs()
	if err != nil || len(pids) == 0 {
		t.Fatalf("processes of %s: %v (%v)", k.Name, pids, err)
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(number, "%d:%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(fmt.Sprintf("/proc/%d/root", pids[0]), path)
	if err := unix.Mknod(at, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor))); err != nil {
		t.Fatalf("make %s: %v", at, err)
	}
}

// unmountDeadline is more than 64 MiB take at 1 MiB/s: what a container has left is written at
// its limit if no plugin lifts that.
const unmountDeadline = 3 * time.Minute

// unmounts unmounts a directory at the end of a test. A sync of the plugin, which has just
// ended, may still be under way. Where it stays busy the error names the processes that use it.
func unmounts(t *testing.T, dir string) {
	t.Helper()
	Within(t, unmountDeadline, "it can be unmounted", func() error {
		if err := Runs("umount", dir); err != nil {
			return fmt.Errorf("%w; in use by %s", err, usersOf(dir))
		}
		return nil
	})
}

// usersOf lists the processes that have a file, or their directory, below dir, and the mounts
// below it.
func usersOf(dir string) string {
	var out []string
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*") // a process that has ended has none
	for _, name := range []string{"cwd", "root", "exe"} {
		more, _ := filepath.Glob("/proc/[0-9]*/" + name)
		links = append(links, more...)
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || target != dir && !strings.HasPrefix(target, dir+"/") {
			continue
		}
		process := filepath.Join("/proc", strings.Split(link, "/")[2])
		command, _ := os.ReadFile(process + "/cmdline")
		stack, _ := os.ReadFile(process + "/stack")
		out = append(out, fmt.Sprintf("%s -> %s: %q, in the kernel %q", link, target, command, stack))
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " "+dir) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return strings.Join(out, "\n")
}
