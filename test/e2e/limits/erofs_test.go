package limits

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestErofsFromFile verifies that reads from an EROFS that is mounted from a file, as containerd mounts layers, are
// limited on the disk of the file.
func TestErofsFromFile(t *testing.T) {
	content, image, at := t.TempDir(), lab.File(t, "xfs", "erofs"), t.TempDir()
	fill(t, filepath.Join(content, "file"), 32*lab.MiB)
	lab.Administer(t, "mkfs.erofs", "--quiet", image, content)
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	dropCache(t, f)
	err = unix.Mount(image, at, "erofs", unix.MS_RDONLY, "")
	if errors.Is(err, unix.ENOTBLK) {
		t.Skip("before Linux 6.12, EROFS is mounted from devices only")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	})
	lab.StartPlugin(t)
	k := lab.RunPod(t, "pod", lab.Annotations{lab.Limits + "container.c": "/data rbps=1Mi"}).MustRun(cri.ContainerConfig{
		Name: "c", Memory: lab.MemoryLimit, Mounts: []cri.Mount{{Host: at, Path: "/data", ReadOnly: true}},
		Args: []string{"read", "--block", "64Ki", "--span", "32Mi", "--path", "/data/file"},
	})
	lab.WantIOMax(t, k.Cgroup, lab.Disks{"vdd": "rbps=1048576"})
	lab.WantRate(t, k.Cgroup, "vdd", "rbytes", lab.MiB)
}
