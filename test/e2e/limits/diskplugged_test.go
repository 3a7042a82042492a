package limits

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestDiskIsPlugged verifies that a disk that running containers get by a device node, created from outside as
// by KubeVirt, is limited once a container with a limit for * uses it. Containers without such a limit, and the
// disks below, are not limited. After the disk is removed, no limit moves to the disks below.
func TestDiskIsPlugged(t *testing.T) {
	lab.StartPlugin(t)
	t.Cleanup(func() { _ = lab.Runs("dmsetup", "remove", "--retry", "e2e") }) // where the test did not come so far
	run := func(name, value string) (lab.PodOf, *cri.Container) {
		pod := lab.RunPodOf(t, name, cri.PodConfig{Privileged: true, Annotations: lab.Annotations{lab.Limits + "container.c": value}})
		return pod, pod.MustRun(cri.ContainerConfig{Name: "c", Args: []string{"sleep"}, Memory: lab.MemoryLimit, Privileged: true})
	}
	pod, each := run("each", "* wbps=1Mi")
	_, named := run("named", "rootfs wbps=1Mi")
	const one = "wbps=1048576"
	lab.WantIOMax(t, each.Cgroup, lab.Disks{"vda": one})

	lab.CreateStacked(t)
	s := lab.Store{Label: "plugged", Target: "/dev/plugged", Devices: map[string]string{}, Disks: []string{lab.DiskBehind(t, "/dev/mapper/e2e")}}
	number, want := lab.Know(t, s.Disks[0]), lab.Disks{"vda": one, s.Disks[0]: one}
	for _, k := range []*cri.Container{each, named} {
		lab.MakeDevice(t, k, s.Path(), number)
		lab.WantIOMax(t, k.Cgroup, lab.Disks{"vda": one}) // until it is used
		if _, err := k.Exec(t.Context(), lab.Deadline, "/bin/iotool", "write", "--direct", "--path", s.Path(), "--size", "4Mi"); err != nil {
			t.Fatal(err)
		}
	}
	lab.AwaitIOMax(t, each.Cgroup, want)
	lab.AwaitIOMax(t, pod.Cgroup, want)
	s.Rate(t, each, []string{"write", "--path", s.Path(), "--block", "64Ki", "--span", "64Mi", "--direct"})
	lab.StaysIOMax(t, each.Cgroup, want)
	lab.WantIOMax(t, named.Cgroup, lab.Disks{"vda": one})

	lab.Administer(t, "dmsetup", "remove", "--retry", "e2e")
	lab.AwaitIOMax(t, each.Cgroup, lab.Disks{"vda": one})
	lab.StaysIOMax(t, each.Cgroup, lab.Disks{"vda": one})
}
