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

// NullDisk makes a disk of the kernel's null_blk, with an ext4 filesystem in memory, until the test ends. settings are files of
// null_blk's configfs. null_blk has no serial number, without which no calibration is saved, so the disk is a SCSI disk of the
// kernel's own target, which passes all to null_blk.
func NullDisk(t *testing.T, settings map[string]string) string {
	t.Helper()
	Administer(t, "modprobe", "null_blk", "nr_devices=0")
	Administer(t, "modprobe", "-a", "target_core_iblock", "tcm_loop")
	const config = "/sys/kernel/config/"
	null, store, port := config+"nullb/nullb0", config+"target/core/iblock_0/null", config+"target/loopback/naa.6001405000000001/tpgt_1"
	for _, dir := range []string{null, filepath.Dir(store), store, filepath.Dir(port), port, port + "/lun/lun_0"} {
		Administer(t, "mkdir", "-p", dir)
		t.Cleanup(func() { Administer(t, "rmdir", dir) })
	}
	set := func(file, value string) {
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range settings {
		set(filepath.Join(null, name), value)
	}
	set(null+"/memory_backed", "1")
	set(null+"/power", "1")
	set(store+"/control", "udev_path=/dev/nullb0")
	set(store+"/wwn/vpd_unit_serial", "null")
	set(store+"/enable", "1")
	set(port+"/nexus", "naa.6001405000000002")
	Administer(t, "ln", "-s", store, port+"/lun/lun_0/null")
	t.Cleanup(func() { Administer(t, "rm", port+"/lun/lun_0/null") })
	var disk string
	Eventually(t, "the disk is there", func() error {
		found, err := filepath.Glob("/sys/devices/tcm_loop_0/*/host*/target*/*/block/*")
		if err == nil && len(found) != 1 {
			return fmt.Errorf("disks of tcm_loop are %v, want one", found)
		}
		disk = filepath.Base(found[0])
		return err
	})
	for _, name := range []string{"nullb0", disk} { // otherwise sequential requests become fewer and larger ones
		set("/sys/block/"+name+"/queue/nomerges", "2")
	}
	Administer(t, "mkfs.ext4", "-q", "-O", "^has_journal", "/dev/"+disk)
	return disk
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
