package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// TestMountComesLater verifies that a disk that is mounted into a running container is limited there, without a
// resync, and for as long as the container runs. The same holds for a disk that is mounted over the volume
// itself. A container that does not get the mount is not limited on that disk.
func TestMountComesLater(t *testing.T) {
	host, err := os.MkdirTemp(volumes["ext4"], "later-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(host) })
	sub, whole := filepath.Join(host, "sub"), filepath.Join(host, "whole")
	mustMkdir(t, sub)
	mustMkdir(t, whole)
	startPlugin(t, "--resync", "1h")
	pod := runPod(t, "pod", annotations{
		limits + "container.all":     "* wbps=1Mi",
		limits + "container.named":   "/data/sub wbps=1Mi",
		limits + "container.over":    "/data wbps=1Mi",
		limits + "container.private": "* wbps=1Mi",
	})
	run := func(name, host string, propagated bool) *cri.Container {
		return pod.run(cri.ContainerConfig{
			Name: name, Args: []string{"sleep"}, Mounts: []cri.Mount{{Host: host, Path: "/data", Propagated: propagated}},
		})
	}
	all, named, over, private := run("all", host, true), run("named", host, true), run("over", whole, true), run("private", host, false)
	const one = "wbps=1048576"
	awaitIOMax(t, all.Cgroup, disks{"vda": one, "vdb": one})
	awaitIOMax(t, named.Cgroup, disks{"vdb": one}) // its path is on that then
	awaitIOMax(t, over.Cgroup, disks{"vdb": one})
	for _, at := range []string{sub, whole} {
		administer(t, "mount", "--bind", volumes["xfs"], at)
		t.Cleanup(func() { administer(t, "umount", at) })
	}
	awaitIOMax(t, all.Cgroup, disks{"vda": one, "vdb": one, "vdd": one})
	awaitIOMax(t, named.Cgroup, disks{"vdb": one, "vdd": one})
	awaitIOMax(t, over.Cgroup, disks{"vdb": one, "vdd": one})
	wantIOMax(t, private.Cgroup, disks{"vda": one, "vdb": one})
	for _, k := range []*cri.Container{named, over} { // it is there, as the limit says
		path := map[*cri.Container]string{named: "/data/sub/later", over: "/data/later"}[k]
		if _, err := k.Exec(t.Context(), deadline, "/bin/iotool", "write", "--direct", "--path", path, "--size", "1Mi"); err != nil {
			t.Error(err)
		}
		if n, err := cgroup.Dir(k.Cgroup).Counter(node.disks["vdd"], "wbytes"); err != nil || n < mib {
			t.Errorf("%d bytes of container %s are charged on vdd (%v), want at least 1 MiB", n, k.Name, err)
		}
	}
	os.Remove(filepath.Join(volumes["xfs"], "later"))
}

// TestFilesystemGrows verifies that a disk that is added to a btrfs while a container writes to it is limited
// as well.
func TestFilesystemGrows(t *testing.T) {
	k := newKit(t, 1)
	first, second := k.pair()
	know(t, raw...)
	dir := k.mounts("btrfs", first)
	startPlugin(t) // the kernel may tell before the filesystem has the disk
	pod := runPod(t, "pod", annotations{limits + "container.c": "/data wbps=1Mi"})
	c := pod.run(cri.ContainerConfig{
		Name: "c", Args: []string{"write", "--direct", "--path", "/data/file", "--span", "32Mi"},
		Mounts: []cri.Mount{{Host: dir, Path: "/data"}},
	})
	wantIOMax(t, c.Cgroup, disks{raw[0]: "wbps=1048576"})
	administer(t, "btrfs", "-q", "device", "add", "-f", "-K", second, dir)
	awaitIOMax(t, c.Cgroup, disks{raw[0]: "wbps=1048576", raw[1]: "wbps=1048576"})
}

// TestVolumeGrows verifies that a volume keeps its limit when it is enlarged while it is mounted, and when it
// is mounted at another path.
func TestVolumeGrows(t *testing.T) {
	k := newKit(t, 1)
	group := k.volumeGroup()
	device := k.logical(group, "grows", "-L", "64M")
	disk := diskBehind(t, device)
	know(t, disk)
	dir := k.mounts("ext4", device)
	startPlugin(t)
	pod := runPod(t, "pod", annotations{limits + "container.c": "/data wbps=1Mi"})
	c := pod.run(cri.ContainerConfig{
		Name: "c", Args: []string{"write", "--direct", "--path", "/data/file", "--span", "32Mi"}, Mounts: []cri.Mount{{Host: dir, Path: "/data"}},
	})
	want := disks{disk: "wbps=1048576"}
	wantIOMax(t, c.Cgroup, want)
	administer(t, "lvextend", "-q", "-L", "128M", device)
	administer(t, "resize2fs", device)
	elsewhere := k.mount(device)
	staysIOMax(t, c.Cgroup, want)
	wantRate(t, c.Cgroup, disk, "wbytes", mib)
	// A container of the other place is limited on the same disk.
	other := runPod(t, "other", annotations{limits + "container.c": "/data wbps=2Mi"})
	k2 := other.run(cri.ContainerConfig{Name: "c", Args: []string{"sleep"}, Mounts: []cri.Mount{{Host: elsewhere, Path: "/data"}}})
	wantIOMax(t, k2.Cgroup, disks{disk: "wbps=2097152"})
}

// TestVolumeIsRenumbered verifies that the next container of a pod is limited on the disk that is now at the
// path of its volume, and that no limit for the former disk remains.
func TestVolumeIsRenumbered(t *testing.T) {
	k := newKit(t, 1)
	group, dir := k.volumeGroup(), t.TempDir()
	startPlugin(t)
	pod := runPod(t, "pod", annotations{limits + "containers": "/data wbps=1Mi"})
	for _, name := range []string{"first", "second"} {
		device := k.logical(group, name, "-L", "64M")
		disk := diskBehind(t, device)
		know(t, disk)
		administer(t, "mkfs.ext4", "-q", device)
		administer(t, "mount", device, dir)
		unmount := func() error { return runs("umount", dir) }
		t.Cleanup(func() { _ = unmount() }) // where the test did not come so far
		c := pod.run(cri.ContainerConfig{Name: name, Args: []string{"sleep"}, Mounts: []cri.Mount{{Host: dir, Path: "/data"}}})
		wantIOMax(t, c.Cgroup, disks{disk: "wbps=1048576"})
		awaitIOMax(t, pod.Cgroup, disks{disk: "wbps=1048576"})
		if err := c.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := unmount(); err != nil {
			t.Fatal(err)
		}
	}
}
