package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// TestMountComesLater: a disk that is mounted into a running container is limited
// there, and one that goes is not any more, without the next resync. Beside it is a
// container that it does not come into.
func TestMountComesLater(t *testing.T) {
	host, err := os.MkdirTemp(volumes["ext4"], "later-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(host) })
	sub := filepath.Join(host, "sub")
	mustMkdir(t, sub)
	startPlugin(t, "--resync", "1h")
	pod := runPod(t, "pod", annotations{
		limits + "container.all":     "* wbps=1Mi",
		limits + "container.named":   "/data/sub wbps=1Mi",
		limits + "container.private": "* wbps=1Mi",
	})
	run := func(name string, propagated bool) string {
		return pod.run(cri.ContainerConfig{
			Name: name, Args: []string{"sleep"}, Mounts: []cri.Mount{{Host: host, Path: "/data", Propagated: propagated}},
		}).Cgroup
	}
	all, named, private := run("all", true), run("named", true), run("private", false)
	const one = "wbps=1048576"
	before := func(dir string) error { return checkIOMax(dir, disks{"vda": one, "vdb": one}) }
	for range 2 {
		eventually(t, "limits without the mount", func() error { return before(all) })
		awaitIOMax(t, named, disks{"vdb": one}) // its path is on that then
		administer(t, "mount", "--bind", volumes["xfs"], sub)
		awaitIOMax(t, all, disks{"vda": one, "vdb": one, "vdd": one})
		awaitIOMax(t, named, disks{"vdd": one})
		if err := before(private); err != nil {
			t.Error(err)
		}
		administer(t, "umount", sub)
	}
	eventually(t, "limits at last", func() error { return before(all) })
}

// TestFilesystemGrows: a btrfs gets one more disk while a container writes to it, and
// the limit is there, too; and goes with the disk.
func TestFilesystemGrows(t *testing.T) {
	k := newKit(t)
	first, second := k.pair()
	know(t, raw...)
	dir := k.mounts("btrfs", first)
	startPlugin(t, "--resync", "1h")
	pod := runPod(t, "pod", annotations{limits + "container.c": "/data wbps=1Mi"})
	c := pod.run(cri.ContainerConfig{Name: "c", Args: []string{"sleep"}, Mounts: []cri.Mount{{Host: dir, Path: "/data"}}})
	one := disks{raw[0]: "wbps=1048576"}
	wantIOMax(t, c.Cgroup, one)
	administer(t, "btrfs", "-q", "device", "add", "-f", "-K", second, dir)
	awaitIOMax(t, c.Cgroup, disks{raw[0]: "wbps=1048576", raw[1]: "wbps=1048576"})
	administer(t, "btrfs", "-q", "device", "remove", second, dir)
	awaitIOMax(t, c.Cgroup, one)
}

// TestVolumeGrows: a volume that is made larger while it is mounted, and mounted
// elsewhere, keeps its limit.
func TestVolumeGrows(t *testing.T) {
	k := newKit(t)
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
