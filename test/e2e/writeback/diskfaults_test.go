package writeback

import (
	"bytes"
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
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// These tests make a disk or a filesystem fail when a container ends. After each failure the plugin,
// the next container and the runtime must work, and nothing may be left behind.

// ending is a container with data to write, on a disk of the test's own.
type ending struct {
	*testing.T
	plugin *lab.Instance
	pod    lab.PodOf
	k      *cri.Container
	disk   string // "dm-0", "sda"
	dir    string // where it is mounted
	before debris
}

// newEnding runs a container that has 8 MiB to write at a limit of 512 KiB/s, in
// a pod without a limit.
func newEnding(t *testing.T, disk, dir string) *ending {
	t.Helper()
	lab.Know(t, disk)
	began := time.Now()
	e := &ending{T: t, plugin: lab.StartPlugin(t, "--log-level", "debug"), disk: disk, dir: dir}
	// It loads its BPF programs after it has registered, and has descriptors of them.
	lab.Eventually(t, "the writeback part runs", func() error {
		if at := lab.Report(t).At; !at.After(began) {
			return fmt.Errorf("its last report is of %v", at)
		}
		return nil
	})
	e.pod = lab.RunPod(t, "pod", lab.Annotations{lab.Limits + "container.c": "/data wbps=512Ki"})
	e.pod.MustRun(lab.Sleeper("free"))
	e.before = debrisOf(t, e.plugin)
	e.k = e.pod.MustRun(cri.ContainerConfig{Name: "c", Args: []string{"sleep"}, Mounts: []cri.Mount{{Host: dir, Path: "/data"}}})
	lab.WantIOMax(t, e.k.Cgroup, lab.Disks{disk: "wbps=524288"})
	if _, err := e.k.Exec(t.Context(), lab.Deadline, "/bin/iotool", "write", "--path", "/data/file", "--size", "8Mi"); err != nil {
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
	lab.Eventually(e.T, "the log has the end of the container", func() error {
		if e.plugin.Count(lab.LogLifted)+e.plugin.Count(lab.LogLost)+e.plugin.Count(logStuck) == 0 {
			return errors.New("the log has neither lifted limits, nor a removed cgroup, nor a failure")
		}
		return nil
	})
}

// goesOn verifies that containers start and are limited on another disk.
func (e *ending) goesOn(name string) {
	e.Helper()
	pod := lab.RunPod(e.T, name, lab.Limited)
	k := pod.MustRun(lab.Sleeper("c", "/data", "ext4"))
	lab.WantIOMax(e.T, k.Cgroup, lab.LimitedDisk)
	if err := pod.RemoveSandbox(e.Context()); err != nil {
		e.Error(err)
	}
}

// leavesNothing waits until neither the plugin nor the kernel has anything of the container.
func (e *ending) leavesNothing() {
	e.Helper()
	lab.Eventually(e.T, "nothing is left", func() error { return e.before.same(debrisOf(e.T, e.plugin)) })
}

// debris has the descriptors, processes and cgroups that a plugin could leave behind.
type debris struct {
	descriptors []string
	processes   string
	cgroups     []string
}

func debrisOf(t *testing.T, p *lab.Instance) debris {
	t.Helper()
	var d debris
	proc := fmt.Sprintf("/proc/%d/", p.Cmd.Process.Pid)
	fds, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		// A descriptor that was closed meanwhile has no name, and does not count. The plugin may keep files of a pod's cgroup open
		// as long as there is the cgroup.
		name, err := os.Readlink(proc + "fd/" + fd.Name())
		if err != nil {
			continue
		}
		if _, err := os.Stat(name); err != nil || !strings.HasPrefix(name, cgroup.Root+"/kubepods") {
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
	lab.WriteFile(t, "/sys/block/"+disk+"/device/delete", "1")
	e.ends()
	e.goesOn("beside")
	e.leavesNothing()
}

// TestUnmounted verifies that nothing hangs if a volume is unmounted on the node before its container ends.
func TestUnmounted(t *testing.T) {
	dir := mountDisk(t, lab.StackedDevice(t))
	e := newEnding(t, "dm-0", dir)
	lab.Administer(t, "umount", dir)
	e.ends()
	lab.AwaitOnDisk(t)
	e.goesOn("beside")
	e.leavesNothing()
}

// TestFilesystemShutdown verifies that nothing hangs if a filesystem is shut down, as the kernel does after an
// error of the disk, before the container ends. From then on each call fails, and dirty data never reaches the
// disk.
func TestFilesystemShutdown(t *testing.T) {
	dir := mountDisk(t, lab.StackedDevice(t))
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
	lab.Administer(t, "umount", dir) // nothing keeps it in use
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
	e := newEnding(t, "dm-0", mountDisk(t, lab.StackedDevice(t)))
	lab.Administer(t, "dmsetup", "suspend", "--nolockfs", "e2e")
	resume := func() { lab.Administer(t, "dmsetup", "resume", "e2e") }
	t.Cleanup(resume) // once more is no error
	e.ends()
	lab.Eventually(t, "a sync hangs on the suspended disk", func() error { // it begins after the line of the log
		if syncs(t) == "" {
			return errors.New("there is none: the test cannot show anything")
		}
		return nil
	})
	e.goesOn("beside")
	e.plugin.Kill(t)
	e.plugin = lab.StartPlugin(t, "--log-level", "debug")
	e.goesOn("again")
	resume()
	lab.AwaitOnDisk(t)
	awaitNoSync(t)
}

// TestNothingLeaks verifies that, after many containers have started and ended, the plugin has as many
// processes and descriptors as before.
func TestNothingLeaks(t *testing.T) {
	p := lab.StartPlugin(t, "--log-level", "debug")
	pod := lab.RunPod(t, "pod", lab.Limited)
	pod.MustRun(lab.Sleeper("stays", "/data", "ext4"))
	p.Await(t, "msg=Watched", 1) // it holds a program in the kernel from then on
	before := debrisOf(t, p)
	const exits = 5
	for i := range exits {
		if err := pod.MustRun(lab.Sleeper(fmt.Sprint("c", i), "/data", "ext4")).Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	lab.Eventually(t, "the log has each exit", func() error {
		if logged := p.Count(lab.LogLifted) + p.Count(lab.LogLost); logged != exits {
			return fmt.Errorf("the log has %d of %d exits", logged, exits)
		}
		return nil
	})
	lab.Eventually(t, "nothing is left", func() error { return before.same(debrisOf(t, p)) })
}

// TestUnaskedMounts verifies that a mount that no annotation names, but that the container can write to, is
// found at the end of the container, so that the limits of the pod are removed once all data is written.
func TestUnaskedMounts(t *testing.T) {
	p := lab.StartPlugin(t, "--log-level", "debug")
	pod := lab.RunPod(t, "pod", lab.Limited)
	k := pod.MustRun(lab.Sleeper("c", "/data", "ext4", "/data-too", "ext4", "/other", "xfs"))
	lab.WantIOMax(t, pod.Cgroup, lab.LimitedDisk)
	if err := k.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.HandedOver(t, k.Name) // or not: what is left is synced either way
	lab.AwaitIOMax(t, pod.Cgroup, nil)
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
	lab.Eventually(t, "no sync is left", func() error {
		if pids := syncs(t); pids != "" {
			return errors.New("processes " + pids)
		}
		return nil
	})
}

// scsiDisk is a disk in memory that can be taken out.
func scsiDisk(t *testing.T) string {
	t.Helper()
	return lab.SCSIDisks(t, 1, "dev_size_mb=128")[0]
}

// mountDisk makes an ext4 on a device and mounts it.
func mountDisk(t *testing.T, device string) string {
	t.Helper()
	dir := t.TempDir()
	lab.Administer(t, "mkfs.ext4", "-q", device)
	lab.Administer(t, "mount", device, dir)
	t.Cleanup(func() {
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err != nil || bytes.Contains(mounts, []byte(" "+dir+" ")) {
			lab.Administer(t, "umount", dir)
		}
	})
	return dir
}
