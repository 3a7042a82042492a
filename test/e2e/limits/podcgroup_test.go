package limits

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// testBackstop verifies the limit of a pod's own cgroup while containers start and end: the sum of the
// containers' limits while each has one, and none while one has no limit.
func testBackstop(t *testing.T) {
	pod := lab.RunPod(t, "pod", lab.Annotations{
		lab.Limits + "container.a": "/data wbps=1Mi",
		lab.Limits + "container.b": "/data wbps=2Mi; rootfs wbps=1Mi",
	})
	pod.MustRun(lab.Sleeper("a", "/data", "ext4"))
	lab.WantIOMax(t, pod.Cgroup, lab.Disks{"vdb": "wbps=1048576"})

	b := pod.MustRun(lab.Sleeper("b", "/data", "ext4")) // a has no limit on vda
	lab.WantIOMax(t, pod.Cgroup, lab.Disks{"vdb": "wbps=3145728"})

	free := pod.MustRun(lab.Sleeper("free"))
	lab.WantIOMax(t, pod.Cgroup, nil)

	if err := free.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	lab.AwaitIOMax(t, pod.Cgroup, lab.Disks{"vdb": "wbps=3145728"})
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	lab.AwaitIOMax(t, pod.Cgroup, lab.Disks{"vdb": "wbps=1048576"})
}

// testPodTotalStays verifies that a pod-total is not replaced by a sum, and stays in force beside an unlimited
// container.
func testPodTotalStays(t *testing.T) {
	pod := lab.RunPod(t, "pod", lab.Annotations{
		lab.Limits + "pod-total":   "/data wbps=3Mi",
		lab.Limits + "container.a": "/data wbps=1Mi riops=100",
	})
	pod.MustRun(lab.Sleeper("a", "/data", "ext4"))
	lab.WantIOMax(t, pod.Cgroup, lab.Disks{"vdb": "wbps=1048576 riops=100"})

	free := pod.MustRun(lab.Sleeper("free", "/data", "ext4"))
	lab.WantIOMax(t, free.Cgroup, nil)
	lab.WantIOMax(t, pod.Cgroup, lab.Disks{"vdb": "wbps=3145728"})

	if err := free.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	lab.AwaitIOMax(t, pod.Cgroup, lab.Disks{"vdb": "wbps=1048576 riops=100"})
}
