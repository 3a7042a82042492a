package e2e

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// TestStacked: a filesystem on a device that is made of a disk is limited on
// that device, and writes to it are as slow as was asked.
func TestStacked(t *testing.T) {
	dir := mountDisk(t, stackedDevice(t))
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

// stackedDevice is a linear device on the spare disk.
func stackedDevice(t *testing.T) string {
	t.Helper()
	administer(t, "dmsetup", "create", "e2e", "--table", "0 1048576 linear /dev/vdf 0")
	t.Cleanup(func() { administer(t, "dmsetup", "remove", "--retry", "e2e") })
	return "/dev/mapper/e2e"
}
