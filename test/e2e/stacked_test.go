package e2e

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// TestStacked: a filesystem on a device that is made of a disk is limited on
// that device, and writes to it are as slow as was asked.
func TestStacked(t *testing.T) {
	dir := stackedMount(t)
	startPlugin(t)
	pod := runPod(t, "pod", annotations{limits + "container.c": "/data wbps=1Mi"})
	k := pod.run(cri.ContainerConfig{
		Name: "c", Mounts: []cri.Mount{{Host: dir, Path: "/data"}},
		Args: []string{"write", "--direct", "--path", "/data/file"},
	})
	number, err := cgroup.Disk("dm-0")
	if err != nil {
		t.Fatal(err)
	}
	node.disks["dm-0"] = number
	defer delete(node.disks, "dm-0")
	wantIOMax(t, k.Cgroup, disks{"dm-0": "wbps=1048576"})
	wantRate(t, k.Cgroup, "dm-0", "wbytes", mib)
}

// stackedMount makes an ext4 on a linear device on the spare disk.
func stackedMount(t *testing.T) string {
	t.Helper()
	const name, device = "e2e", "/dev/mapper/e2e"
	dir := t.TempDir()
	run := func(command ...string) {
		t.Helper()
		// In cleanups, too, when the test's own context has ended.
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out)
		}
	}
	run("dmsetup", "create", name, "--table", "0 1048576 linear /dev/vdf 0")
	t.Cleanup(func() { run("dmsetup", "remove", "--retry", name) })
	run("mkfs.ext4", "-q", device)
	run("mount", device, dir)
	t.Cleanup(func() { run("umount", dir) })
	return dir
}
