package e2e

import (
	"testing"
)

// testBackstop verifies the limit of a pod's own cgroup while containers start and end: the sum of the
// containers' limits while each has one, and none while one has no limit.
func testBackstop(t *testing.T) {
	pod := runPod(t, "pod", annotations{
		limits + "container.a": "/data wbps=1Mi",
		limits + "container.b": "/data wbps=2Mi; rootfs wbps=1Mi",
	})
	pod.run(sleeper("a", "/data", "ext4"))
	wantIOMax(t, pod.Cgroup, disks{"vdb": "wbps=1048576"})

	b := pod.run(sleeper("b", "/data", "ext4")) // a has no limit on vda
	wantIOMax(t, pod.Cgroup, disks{"vdb": "wbps=3145728"})

	free := pod.run(sleeper("free"))
	wantIOMax(t, pod.Cgroup, nil)

	if err := free.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitIOMax(t, pod.Cgroup, disks{"vdb": "wbps=3145728"})
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitIOMax(t, pod.Cgroup, disks{"vdb": "wbps=1048576"})
}

// testPodTotalStays verifies that a pod-total is not replaced by a sum, and stays in force beside an unlimited
// container.
func testPodTotalStays(t *testing.T) {
	pod := runPod(t, "pod", annotations{
		limits + "pod-total":   "/data wbps=3Mi",
		limits + "container.a": "/data wbps=1Mi riops=100",
	})
	pod.run(sleeper("a", "/data", "ext4"))
	wantIOMax(t, pod.Cgroup, disks{"vdb": "wbps=1048576 riops=100"})

	free := pod.run(sleeper("free", "/data", "ext4"))
	wantIOMax(t, free.Cgroup, nil)
	wantIOMax(t, pod.Cgroup, disks{"vdb": "wbps=3145728"})

	if err := free.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitIOMax(t, pod.Cgroup, disks{"vdb": "wbps=1048576 riops=100"})
}
