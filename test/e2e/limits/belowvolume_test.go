package limits

import (
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestBelowVolume verifies that a limit on a disk applies to a logical volume on that disk as well, and
// that the data on the logical volume is written soon after the end of the container.
func TestBelowVolume(t *testing.T) {
	k := lab.NewKit(t, 2)
	lv := k.Logical(k.VolumeGroup(), "onlimited", "-l", "50%VG")
	onLV, onDisk := k.Mounts("ext4", lv), k.Mounts("ext4", k.One())
	lab.Know(t, lab.Raw...)
	limited := lab.Raw[0] // LVM begins with the first disk of the group
	p := lab.StartPlugin(t, "--log-level", "debug")
	pod := lab.RunPod(t, "pod", lab.Annotations{lab.Limits + "containers": "/data wbps=512Ki"})
	pod.MustRun(cri.ContainerConfig{Name: "free", Args: []string{"sleep"}}) // without a limit: the pod has none then
	leaveOnVolume := func(name string) {
		c := pod.MustRun(cri.ContainerConfig{
			Name: name, Args: []string{"write", "--direct", "--path", "/lv/" + name, "--span", "32Mi"},
			Mounts: []cri.Mount{{Host: onDisk, Path: "/data"}, {Host: onLV, Path: "/lv"}},
		})
		lab.WantIOMax(t, c.Cgroup, lab.Disks{limited: "wbps=524288"})
		lab.WantRate(t, c.Cgroup, limited, "wbytes", lab.MiB/2)
		if _, err := c.Exec(t.Context(), lab.Deadline, "/bin/iotool", "write", "--size", "16Mi", "--path", "/lv/left-"+name); err != nil {
			t.Fatal(err)
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// On a busy machine the race at a container's end can be lost.
	leaveOnVolume("first")
	if !p.HandedOver(t, "first") {
		lab.AwaitOnDisk(t)
		leaveOnVolume("second")
		if !p.HandedOver(t, "second") {
			t.Fatal("in two exits the cgroup was removed before its limits were lifted")
		}
	}
	began := time.Now()
	lab.AwaitOnDisk(t)
	took := time.Since(began)
	t.Logf("16 MiB were on the disk %v after the end", took.Round(10*time.Millisecond))
	if took > 16*time.Second {
		t.Errorf("16 MiB were on the disk %v after the end, want less than 16 s: at the limit it takes 32 s", took)
	}
}
