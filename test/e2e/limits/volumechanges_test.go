package limits

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestMountComesLater verifies that a disk that is mounted into a running container is limited there, without a
// resync, and for as long as the container runs. The same holds for a disk that is mounted over the volume
// itself. A container that does not get the mount is not limited on that disk.
func TestMountComesLater(t *testing.T) {
	host, err := os.MkdirTemp(lab.Volumes["ext4"], "later-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(host) })
	sub, whole := filepath.Join(host, "sub"), filepath.Join(host, "whole")
	lab.MustMkdir(t, sub)
	lab.MustMkdir(t, whole)
	lab.StartPlugin(t, "--resync", "1h")
	pod := lab.RunPod(t, "pod", lab.Annotations{
		lab.Limits + "container.all":     "* wbps=1Mi",
		lab.Limits + "container.named":   "/data/sub wbps=1Mi",
		lab.Limits + "container.over":    "/data wbps=1Mi",
		lab.Limits + "container.private": "* wbps=1Mi",
	})
	run := func(name, host string, propagated bool) *cri.Container {
		return pod.MustRun(cri.ContainerConfig{
			Name: name, Args: []string{"sleep"}, Mounts: []cri.Mount{{Host: host, Path: "/data", Propagated: propagated}},
		})
	}
	all, named, over, private := run("all", host, true), run("named", host, true), run("over", whole, true), run("private", host, false)
	const one = "wbps=1048576"
	lab.AwaitIOMax(t, all.Cgroup, lab.Disks{"vda": one, "vdb": one})
	lab.AwaitIOMax(t, named.Cgroup, lab.Disks{"vdb": one}) // its path is on that then
	lab.AwaitIOMax(t, over.Cgroup, lab.Disks{"vdb": one})
	for _, at := range []string{sub, whole} {
		lab.Administer(t, "mount", "--bind", lab.Volumes["xfs"], at)
		t.Cleanup(func() { lab.Administer(t, "umount", at) })
	}
	lab.AwaitIOMax(t, all.Cgroup, lab.Disks{"vda": one, "vdb": one, "vdd": one})
	lab.AwaitIOMax(t, named.Cgroup, lab.Disks{"vdb": one, "vdd": one})
	lab.AwaitIOMax(t, over.Cgroup, lab.Disks{"vdb": one, "vdd": one})
	lab.WantIOMax(t, private.Cgroup, lab.Disks{"vda": one, "vdb": one})
	for _, k := range []*cri.Container{named, over} { // it is there, as the limit says
		path := map[*cri.Container]string{named: "/data/sub/later", over: "/data/later"}[k]
		if _, err := k.Exec(t.Context(), lab.Deadline, "/bin/iotool", "write", "--direct", "--path", path, "--size", "1Mi"); err != nil {
			t.Error(err)
		}
		if n, err := cgroup.Dir(k.Cgroup).Counter(lab.Node.Disks["vdd"], "wbytes"); err != nil || n < lab.MiB {
			t.Errorf("%d bytes of container %s are charged on vdd (%v), want at least 1 MiB", n, k.Name, err)
		}
	}
	os.Remove(filepath.Join(lab.Volumes["xfs"], "later"))
}

// TestFilesystemGrows verifies that a disk that is added to a btrfs while a container writes to it is limited
// as well.
func TestFilesystemGrows(t *testing.T) {
	k := lab.NewKit(t, 1)
	first, second := k.Pair()
	lab.Know(t, lab.Raw...)
	dir := k.Mounts("btrfs", first)
	lab.StartPlugin(t) // the kernel may tell before the filesystem has the disk
	pod := lab.RunPod(t, "pod", lab.Annotations{lab.Limits + "container.c": "/data wbps=1Mi"})
	c := pod.MustRun(cri.ContainerConfig{
		Name: "c", Args: []string{"write", "--direct", "--path", "/data/file", "--span", "32Mi"},
		Mounts: []cri.Mount{{Host: dir, Path: "/data"}},
	})
	lab.WantIOMax(t, c.Cgroup, lab.Disks{lab.Raw[0]: "wbps=1048576"})
	lab.Administer(t, "btrfs", "-q", "device", "add", "-f", "-K", second, dir)
	lab.AwaitIOMax(t, c.Cgroup, lab.Disks{lab.Raw[0]: "wbps=1048576", lab.Raw[1]: "wbps=1048576"})
}

// TestVolumeGrows verifies that a volume keeps its limit when it is enlarged while it is mounted, and when it
// is mounted at another path.
func TestVolumeGrows(t *testing.T) {
	k := lab.NewKit(t, 1)
	group := k.VolumeGroup()
	device := k.Logical(group, "grows", "-L", "64M")
	disk := lab.DiskBehind(t, device)
	lab.Know(t, disk)
	dir := k.Mounts("ext4", device)
	lab.StartPlugin(t)
	pod := lab.RunPod(t, "pod", lab.Annotations{lab.Limits + "container.c": "/data wbps=1Mi"})
	c := pod.MustRun(cri.ContainerConfig{
		Name: "c", Args: []string{"write", "--direct", "--path", "/data/file", "--span", "32Mi"}, Mounts: []cri.Mount{{Host: dir, Path: "/data"}},
	})
	want := lab.Disks{disk: "wbps=1048576"}
	lab.WantIOMax(t, c.Cgroup, want)
	lab.Administer(t, "lvextend", "-q", "-L", "128M", device)
	lab.Administer(t, "resize2fs", device)
	elsewhere := k.Mount(device)
	lab.StaysIOMax(t, c.Cgroup, want)
	lab.WantRate(t, c.Cgroup, disk, "wbytes", lab.MiB)
	// A container of the other place is limited on the same disk.
	other := lab.RunPod(t, "other", lab.Annotations{lab.Limits + "container.c": "/data wbps=2Mi"})
	k2 := other.MustRun(cri.ContainerConfig{Name: "c", Args: []string{"sleep"}, Mounts: []cri.Mount{{Host: elsewhere, Path: "/data"}}})
	lab.WantIOMax(t, k2.Cgroup, lab.Disks{disk: "wbps=2097152"})
}

// TestVolumeIsRenumbered verifies that the next container of a pod is limited on the disk that is now at the
// path of its volume, and that no limit for the former disk remains.
func TestVolumeIsRenumbered(t *testing.T) {
	k := lab.NewKit(t, 1)
	group, dir := k.VolumeGroup(), t.TempDir()
	lab.StartPlugin(t)
	pod := lab.RunPod(t, "pod", lab.Annotations{lab.Limits + "containers": "/data wbps=1Mi"})
	for _, name := range []string{"first", "second"} {
		device := k.Logical(group, name, "-L", "64M")
		disk := lab.DiskBehind(t, device)
		lab.Know(t, disk)
		lab.Administer(t, "mkfs.ext4", "-q", device)
		lab.Administer(t, "mount", device, dir)
		unmount := func() error { return lab.Runs("umount", dir) }
		t.Cleanup(func() { _ = unmount() }) // where the test did not come so far
		c := pod.MustRun(cri.ContainerConfig{Name: name, Args: []string{"sleep"}, Mounts: []cri.Mount{{Host: dir, Path: "/data"}}})
		lab.WantIOMax(t, c.Cgroup, lab.Disks{disk: "wbps=1048576"})
		lab.AwaitIOMax(t, pod.Cgroup, lab.Disks{disk: "wbps=1048576"})
		if err := c.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := unmount(); err != nil {
			t.Fatal(err)
		}
	}
}
