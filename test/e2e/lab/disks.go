package lab

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// SCSIDisks are those that the module makes with the parameters.
func SCSIDisks(t *testing.T, n int, parameters ...string) []string {
	t.Helper()
	Administer(t, append([]string{"modprobe", "scsi_debug", "delay=0"}, parameters...)...)
	t.Cleanup(func() { Administer(t, "modprobe", "-r", "scsi_debug") })
	var found []string
	Eventually(t, "the disks are there", func() (err error) {
		found, err = filepath.Glob("/sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*/block/*")
		if err == nil && len(found) != n {
			err = fmt.Errorf("the kernel has %d disks of scsi_debug, want %d", len(found), n)
		}
		return err
	})
	for i, disk := range found {
		found[i] = filepath.Base(disk)
	}
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
