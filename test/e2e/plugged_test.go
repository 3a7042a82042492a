package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// TestDiskIsPlugged verifies that a disk that running containers get by a device node, created from outside as
// by KubeVirt, is limited once a container with a limit for * uses it. Containers without such a limit, and the
// disks below, are not limited. After the disk is removed, no limit moves to the disks below.
func TestDiskIsPlugged(t *testing.T) {
	startPlugin(t)
	t.Cleanup(func() { _ = runs("dmsetup", "remove", "--retry", "e2e") }) // where the test did not come so far
	run := func(name, value string) (podOf, *cri.Container) {
		pod := runPodOf(t, name, cri.PodConfig{Privileged: true, Annotations: annotations{limits + "container.c": value}})
		return pod, pod.run(cri.ContainerConfig{Name: "c", Args: []string{"sleep"}, Memory: memoryLimit, Privileged: true})
	}
	pod, each := run("each", "* wbps=1Mi")
	_, named := run("named", "rootfs wbps=1Mi")
	const one = "wbps=1048576"
	wantIOMax(t, each.Cgroup, disks{"vda": one})

	createStacked(t)
	s := store{name: "plugged", target: "/dev/plugged", devices: map[string]string{}, disks: []string{diskBehind(t, "/dev/mapper/e2e")}}
	number, want := know(t, s.disks[0]), disks{"vda": one, s.disks[0]: one}
	for _, k := range []*cri.Container{each, named} {
		plug(t, k, s.path(), number)
		wantIOMax(t, k.Cgroup, disks{"vda": one}) // until it is used
		if _, err := k.Exec(t.Context(), deadline, "/bin/iotool", "write", "--direct", "--path", s.path(), "--size", "4Mi"); err != nil {
			t.Fatal(err)
		}
	}
	awaitIOMax(t, each.Cgroup, want)
	awaitIOMax(t, pod.Cgroup, want)
	s.rate(t, each, []string{"write", "--path", s.path(), "--block", "64Ki", "--span", "64Mi", "--direct"})
	staysIOMax(t, each.Cgroup, want)
	wantIOMax(t, named.Cgroup, disks{"vda": one})

	administer(t, "dmsetup", "remove", "--retry", "e2e")
	awaitIOMax(t, each.Cgroup, disks{"vda": one})
	staysIOMax(t, each.Cgroup, disks{"vda": one})
}

// plug makes a device node in a running container.
func plug(t *testing.T, k *cri.Container, path, number string) {
	t.Helper()
	pids, err := cgroup.Dir(k.Cgroup).PIDs()
	if err != nil || len(pids) == 0 {
		t.Fatalf("processes of %s: %v (%v)", k.Name, pids, err)
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(number, "%d:%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(fmt.Sprintf("/proc/%d/root", pids[0]), path)
	if err := unix.Mknod(at, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor))); err != nil {
		t.Fatalf("make %s: %v", at, err)
	}
}
