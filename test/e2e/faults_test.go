package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// These tests make a disk or a filesystem fail when a container ends. After each failure the plugin,
// the next container and the runtime must work, and nothing may be left behind.

// ending is a container with data to write, on a disk of the test's own.
type ending struct {
	*testing.T
	plugin *instance
	pod    podOf
	k      *cri.Container
	disk   string // "dm-0", "sda"
	dir    string // where it is mounted
	before debris
}

// newEnding runs a container that has 8 MiB to write at a limit of 512 KiB/s, in
// a pod without a limit.
func newEnding(t *testing.T, disk, dir string) *ending {
	t.Helper()
	know(t, disk)
	e := &ending{T: t, plugin: startPlugin(t, "--log-level", "debug"), disk: disk, dir: dir}
	e.pod = runPod(t, "pod", annotations{limits + "container.c": "/data wbps=512Ki"})
	e.pod.run(sleeper("free"))
	e.before = debrisOf(t, e.plugin)
	e.k = e.pod.run(cri.ContainerConfig{Name: "c", Args: []string{"sleep"}, Mounts: []cri.Mount{{Host: dir, Path: "/data"}}})
	wantIOMax(t, e.k.Cgroup, disks{disk: "wbps=524288"})
	if _, err := e.k.Exec(t.Context(), deadline, "/bin/iotool", "write", "--path", "/data/file", "--size", "8Mi"); err != nil {
		t.Fatal(err)
	}
	return e
}

// ends stops the container and waits until the plugin has logged its end.
func (e *ending) ends() {
	e.Helper()
	if err := e.k.Stop(e.Context()); err != nil {
		e.Error(err)
	}
	eventually(e.T, "the log has the end of the container", func() error {
		if e.plugin.count(logLifted)+e.plugin.count(logLost)+e.plugin.count(logStuck) == 0 {
			return errors.New("the log has neither lifted limits, nor a removed cgroup, nor a failure")
		}
		return nil
	})
}

// goesOn verifies that containers start and are limited on another disk.
func (e *ending) goesOn(name string) {
	e.Helper()
	pod := runPod(e.T, name, limited)
	k := pod.run(sleeper("c", "/data", "ext4"))
	wantIOMax(e.T, k.Cgroup, limitedDisk)
	if err := pod.RemoveSandbox(e.Context()); err != nil {
		e.Error(err)
	}
}

// leavesNothing waits until neither the plugin nor the kernel has anything of the container.
func (e *ending) leavesNothing() {
	e.Helper()
	eventually(e.T, "nothing is left", func() error { return e.before.same(debrisOf(e.T, e.plugin)) })
}

// debris has the descriptors, processes and cgroups that a plugin could leave behind.
type debris struct {
	descriptors []string
	processes   string
	cgroups     []string
}

func debrisOf(t *testing.T, p *instance) debris {
	t.Helper()
	var d debris
	proc := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	fds, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		// A descriptor that was closed meanwhile has no name, and does not count.
		if name, err := os.Readlink(proc + "fd/" + fd.Name()); err == nil {
			d.descriptors = append(d.descriptors, name)
		}
	}
	children, err := filepath.Glob(proc + "task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range children {
		text, _ := os.ReadFile(c) // of a thread that has ended meanwhile: it has none
		d.processes += string(text)
	}
	out, err := exec.CommandContext(t.Context(), "find", cgroup.Root, "-name", "nri-blkio*").Output()
	if err != nil && len(out) > 0 {
		t.Fatal(err) // a cgroup that goes meanwhile is an error, too
	}
	d.cgroups = strings.Fields(string(out))
	return d
}

// same compares numbers of descriptors: the runtime's sockets come and go.
func (d debris) same(now debris) error {
	if len(now.descriptors) > len(d.descriptors) || now.processes != d.processes || len(now.cgroups) > 0 {
		return fmt.Errorf("the plugin has %d descriptors, sync processes %q and cgroups %v; before it had %d descriptors and processes %q; now\n%s",
			len(now.descriptors), now.processes, now.cgroups, len(d.descriptors), d.processes, strings.Join(now.descriptors, "\n"))
	}
	return nil
}

// TestDiskGone verifies that nothing hangs if a disk is removed while a container has much data to write to it,
// and the container then ends.
func TestDiskGone(t *testing.T) {
	disk := scsiDisk(t)
	e := newEnding(t, disk, mountDisk(t, "/dev/"+disk))
	writeFile(t, "/sys/block/"+disk+"/device/delete", "1")
	e.ends()
	e.goesOn("beside")
	e.leavesNothing()
}

// TestUnmounted verifies that nothing hangs if a volume is unmounted on the node before its container ends.
func TestUnmounted(t *testing.T) {
	dir := mountDisk(t, stackedDevice(t))
	e := newEnding(t, "dm-0", dir)
	administer(t, "umount", dir)
	e.ends()
	awaitOnDisk(t)
	e.goesOn("beside")
	e.leavesNothing()
}

// TestFilesystemShutdown verifies that nothing hangs if a filesystem is shut down, as the kernel does after an
// error of the disk, before the container ends. From then on each call fails, and dirty data never reaches the
// disk.
func TestFilesystemShutdown(t *testing.T) {
	dir := mountDisk(t, stackedDevice(t))
	e := newEnding(t, "dm-0", dir)
	shutDown(t, dir)
	if _, err := os.Create(filepath.Join(dir, "another")); !errors.Is(err, unix.EIO) {
		t.Errorf("create a file on the filesystem that was shut down: %v, want %v: the test cannot show anything", err, unix.EIO)
	}
	e.ends()
	e.goesOn("beside")
	e.leavesNothing()
	if err := e.pod.RemoveSandbox(t.Context()); err != nil {
		t.Error(err)
	}
	administer(t, "umount", dir) // nothing keeps it in use
}

// shutDown shuts a filesystem down without a write to its journal.
func shutDown(t *testing.T, dir string) {
	t.Helper()
	const ext4Shutdown, noLogFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN and its flag, fs/ext4/ext4.h
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), ext4Shutdown, noLogFlush); err != nil {
		t.Fatal(err)
	}
}

// TestSyncHangs verifies that, if the disk does not answer when a container ends, only the sync waits in the
// kernel, also after a restart of the plugin.
func TestSyncHangs(t *testing.T) {
	e := newEnding(t, "dm-0", mountDisk(t, stackedDevice(t)))
	administer(t, "dmsetup", "suspend", "--nolockfs", "e2e")
	resume := func() { administer(t, "dmsetup", "resume", "e2e") }
	t.Cleanup(resume) // once more is no error
	e.ends()
	if syncs(t) == "" {
		t.Error("no sync hangs on the suspended disk: the test cannot show anything")
	}
	e.goesOn("beside")
	e.plugin.kill(t)
	e.plugin = startPlugin(t, "--log-level", "debug")
	e.goesOn("again")
	resume()
	awaitOnDisk(t)
	awaitNoSync(t)
}

// TestNothingLeaks verifies that, after many containers have started and ended, the plugin has as many
// processes and descriptors as before.
func TestNothingLeaks(t *testing.T) {
	p := startPlugin(t, "--log-level", "debug")
	pod := runPod(t, "pod", limited)
	pod.run(sleeper("stays", "/data", "ext4"))
	p.await(t, "msg=Watched", 1) // it holds a program in the kernel from then on
	before := debrisOf(t, p)
	const exits = 5
	for i := range exits {
		if err := pod.run(sleeper(fmt.Sprint("c", i), "/data", "ext4")).Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the log has each exit", func() error {
		if logged := p.count(logLifted) + p.count(logLost); logged != exits {
			return fmt.Errorf("the log has %d of %d exits", logged, exits)
		}
		return nil
	})
	eventually(t, "nothing is left", func() error { return before.same(debrisOf(t, p)) })
}

// TestUnaskedMounts verifies that a mount that no annotation names, but that the container can write to, is
// found at the end of the container, so that the limits of the pod are removed once all data is written.
func TestUnaskedMounts(t *testing.T) {
	p := startPlugin(t, "--log-level", "debug")
	pod := runPod(t, "pod", limited)
	k := pod.run(sleeper("c", "/data", "ext4", "/data-too", "ext4", "/other", "xfs"))
	wantIOMax(t, pod.Cgroup, limitedDisk)
	if err := k.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.handedOver(t, k.Name) // or not: what is left is synced either way
	awaitIOMax(t, pod.Cgroup, nil)
}

// syncs are the processes that sync for a plugin.
func syncs(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "pgrep", "-f", "^/proc/self/exe sync ").Output()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func awaitNoSync(t *testing.T) {
	t.Helper()
	eventually(t, "no sync is left", func() error {
		if pids := syncs(t); pids != "" {
			return errors.New("processes " + pids)
		}
		return nil
	})
}

// scsiDisk is a disk in memory that can be taken out.
func scsiDisk(t *testing.T) string {
	t.Helper()
	return scsiDisks(t, 1, "dev_size_mb=128")[0]
}

// scsiDisks are those that the module makes with the parameters.
func scsiDisks(t *testing.T, n int, parameters ...string) []string {
	t.Helper()
	administer(t, append([]string{"modprobe", "scsi_debug", "delay=0"}, parameters...)...)
	t.Cleanup(func() { administer(t, "modprobe", "-r", "scsi_debug") })
	var found []string
	eventually(t, "the disks are there", func() (err error) {
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

// mountDisk makes an ext4 on a device and mounts it.
func mountDisk(t *testing.T, device string) string {
	t.Helper()
	dir := t.TempDir()
	administer(t, "mkfs.ext4", "-q", device)
	administer(t, "mount", device, dir)
	t.Cleanup(func() {
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err != nil || bytes.Contains(mounts, []byte(" "+dir+" ")) {
			administer(t, "umount", dir)
		}
	})
	return dir
}

// administer runs a program of the node, in cleanups, too, when the test's own
// context has ended.
func administer(t *testing.T, command ...string) {
	t.Helper()
	if err := runs(command...); err != nil {
		t.Fatal(err)
	}
}

// runs runs a program of the node, with a deadline.
func runs(command ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, out)
	}
	return nil
}
