package limits

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestDeviceVanishes verifies what happens if a disk is removed between the creation and the start of a
// container. If its limit is in the OCI spec, containerd rejects the start and names the cause. If the plugin
// writes the limit, the container runs with its other limits, status shows the missing one, and it is written
// when the disk returns. No failure is logged, because a removed disk needs no limit.
func TestDeviceVanishes(t *testing.T) {
	device := lab.StackedDevice(t)
	disk := lab.DiskBehind(t, device)
	lab.Know(t, disk)
	k := &lab.Kit{T: t}
	// Its number is the smaller one, so it is this that the spec has of both.
	kept := k.Loop(filepath.Join(lab.Volumes["ext4"], "vanishes"), "/dev/loop7")
	t.Cleanup(func() { os.Remove(filepath.Join(lab.Volumes["ext4"], "vanishes")) })
	lab.Know(t, "loop7")
	p := lab.StartPlugin(t, "--resync", "1h")
	pod := lab.RunPod(t, "pod", lab.Annotations{
		lab.Limits + "container.one": "/dev/data wbps=1Mi",
		lab.Limits + "container.two": "/dev/data wbps=1Mi; /dev/kept wbps=2Mi",
	})
	created := map[string]*cri.Container{}
	for _, name := range []string{"one", "two"} {
		c, err := pod.Create(t.Context(), cri.ContainerConfig{
			Name: name, Args: []string{"sleep"}, Devices: map[string]string{"/dev/data": device, "/dev/kept": kept},
		})
		if err != nil {
			t.Fatal(err)
		}
		created[name] = c
	}
	lab.Administer(t, "dmsetup", "remove", "--retry", "e2e")
	switch err := created["one"].Start(t.Context()); {
	case cri.IsCRIO():
		if err != nil { // its OCI runtime has written the limits at the creation
			t.Fatal(err)
		}
	case err == nil || !strings.Contains(strings.ToLower(err.Error()), "no such device"): // crun writes "No such device"
		t.Errorf("start of a container whose disk was removed: error %v, want no such device", err)
	case strings.Contains(err.Error(), device):
		t.Errorf("the error shows the tenant the node's path %s: %v", device, err)
	}
	two := created["two"]
	if err := two.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The pod has what this one has: what did not start counts for nothing.
	without, with := lab.Disks{"loop7": "wbps=2097152"}, lab.Disks{"loop7": "wbps=2097152", disk: "wbps=1048576"}
	podWithout, podWith := without, with
	if cri.IsCRIO() { // both run, and one of them has no limit for loop7
		podWithout, podWith = nil, lab.Disks{disk: "wbps=2097152"}
	}
	lab.WantIOMax(t, two.Cgroup, without)
	lab.WantIOMax(t, pod.Cgroup, podWithout)
	lab.Eventually(t, "status shows the missing limit", func() error {
		if rows := strings.Join(statusOf(t, pod), "\n"); !strings.Contains(rows, "two "+disk+" wbps 1Mi max missing") {
			return fmt.Errorf("status is\n%s", rows)
		}
		return nil
	})
	lab.CreateStacked(t)
	lab.AwaitIOMax(t, two.Cgroup, with)
	lab.AwaitIOMax(t, pod.Cgroup, podWith)
	p.Signal(t, 0) // alive
}
