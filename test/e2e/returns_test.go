package e2e

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// TestDiskReturns verifies that the limits of a disk that returns with the same number are written at once, not
// at the next resync. The kernel dropped them when the disk was removed.
func TestDiskReturns(t *testing.T) {
	device := stackedDevice(t)
	disk := diskBehind(t, device)
	number := know(t, disk)
	startPlugin(t, "--resync", "1h")
	pod := runPod(t, "pod", annotations{limits + "container.c": "/dev/data wbps=1Mi"})
	k := pod.run(cri.ContainerConfig{Name: "c", Args: []string{"sleep"}, Devices: map[string]string{"/dev/data": device}})
	want := disks{disk: "wbps=1048576"}
	wantIOMax(t, k.Cgroup, want)
	for range 3 {
		administer(t, "dmsetup", "remove", "--retry", "e2e")
		eventually(t, "the limits are gone with the disk", func() error { return checkIOMax(k.Cgroup, nil) })
		createStacked(t)
		if now, err := cgroup.Disk(disk); err != nil || now != number {
			t.Fatalf("%s was %s, is %s (%v)", disk, number, now, err)
		}
		back := time.Now()
		awaitIOMax(t, k.Cgroup, want)
		awaitIOMax(t, pod.Cgroup, want)
		t.Logf("limited again after %v", time.Since(back).Round(time.Millisecond))
	}
}

// diskBehind is the kernel's name of the block device that a path leads to.
func diskBehind(t *testing.T, device string) string {
	t.Helper()
	path, err := filepath.EvalSymlinks(device)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Base(path)
}
