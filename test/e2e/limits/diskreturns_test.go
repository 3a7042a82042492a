package limits

import (
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestDiskReturns verifies that the limits of a disk that returns with the same number are written at once, not
// at the next resync. The kernel dropped them when the disk was removed.
func TestDiskReturns(t *testing.T) {
	device := lab.StackedDevice(t)
	disk := lab.DiskBehind(t, device)
	number := lab.Know(t, disk)
	lab.StartPlugin(t, "--resync", "1h")
	pod := lab.RunPod(t, "pod", lab.Annotations{lab.Limits + "container.c": "/dev/data wbps=1Mi"})
	k := pod.MustRun(cri.ContainerConfig{Name: "c", Args: []string{"sleep"}, Devices: map[string]string{"/dev/data": device}})
	want := lab.Disks{disk: "wbps=1048576"}
	lab.WantIOMax(t, k.Cgroup, want)
	for range 3 {
		lab.Administer(t, "dmsetup", "remove", "--retry", "e2e")
		lab.Eventually(t, "the limits are gone with the disk", func() error { return lab.CheckIOMax(k.Cgroup, nil) })
		lab.CreateStacked(t)
		if now, err := cgroup.Disk(disk); err != nil || now != number {
			t.Fatalf("%s was %s, is %s (%v)", disk, number, now, err)
		}
		back := time.Now()
		lab.AwaitIOMax(t, k.Cgroup, want)
		lab.AwaitIOMax(t, pod.Cgroup, want)
		t.Logf("limited again after %v", time.Since(back).Round(time.Millisecond))
	}
}
