package limits

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/status"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// without is a volume that no disk of the node is behind.
type without struct {
	name, fs, dir string
	reason        string // part of the message to the tenant
}

// TestStorageWithout verifies that a container with a limit on a volume that is on no disk is rejected at once,
// with the reason. A server that does not answer delays no container.
func TestStorageWithout(t *testing.T) {
	k := &lab.Kit{T: t}
	server := newNFS(k)
	volumes := []without{
		{"memory", "tmpfs", lab.Volumes["tmpfs"], "tmpfs is memory, not a disk"},
		{"the kernel's files", "proc", "/proc/sys", "proc is a view of the kernel, not a disk"},
		{"FUSE", "fuse.*", fuse(k), "is served by a process, and its I/O counts as that process's"},
		{"overlay, upper tmpfs", "overlay", overlayInMemory(k), "the upper layer of this overlay: tmpfs is memory, not a disk"},
		{"NFS", "nfs4", server.dir, "nfs4 is a network filesystem: there is no local disk to limit"},
		{"NFS, its server hangs", "nfs4", server.dir, "nfs4 is a network filesystem: there is no local disk to limit"},
	}
	p := lab.StartPlugin(t)
	a := lab.Annotations{lab.Limits + "container.good": "/data wbps=1Mi"}
	for i := range volumes {
		a[lab.Limits+fmt.Sprintf("container.c%d", i)] = "/mnt/below wbps=1Mi"
	}
	pod := lab.RunPod(t, "pod", a)
	for i, v := range volumes {
		t.Run(v.name, func(t *testing.T) {
			if strings.HasSuffix(v.name, "hangs") {
				server.hang(t)
			}
			ctx, cancel := context.WithTimeout(t.Context(), lab.Deadline)
			defer cancel()
			_, err := pod.Create(ctx, cri.ContainerConfig{
				Name: fmt.Sprintf("c%d", i), Mounts: []cri.Mount{{Host: v.dir, Path: "/mnt"}},
			})
			if err == nil {
				t.Fatal("the container was created")
			}
			message := status.Convert(err).Message()
			if !strings.Contains(message, v.reason) || len(message) > lab.MaxMessage {
				t.Errorf("the container was refused with %q, want %q", message, v.reason)
			}
			lab.PrintRow(v.name, v.fs, "refused: "+v.reason, "")
		})
	}
	lab.WantIOMax(t, pod.MustRun(lab.Sleeper("good", "/data", "ext4")).Cgroup, lab.LimitedDisk)
	p.Signal(t, 0) // alive
}

// fuse is a filesystem that a process serves.
func fuse(k *lab.Kit) string {
	k.Helper()
	image, dir := filepath.Join(k.TempDir(), "image"), k.TempDir()
	lab.Administer(k.T, "truncate", "-s", "16M", image)
	lab.Administer(k.T, "mkfs.ext4", "-q", "-F", image)
	lab.Administer(k.T, "modprobe", "fuse")
	lab.Administer(k.T, "fuse2fs", image, dir)
	k.Cleanup(func() { lab.Administer(k.T, "umount", dir) })
	return dir
}

func overlayInMemory(k *lab.Kit) string {
	k.Helper()
	dir, err := os.MkdirTemp("/run", "overlay-")
	if err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{"upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			k.Fatal(err)
		}
	}
	return k.Mount("-t", "overlay", "-o", fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", lab.Volumes["ext4"], dir, dir), "overlay")
}

// nfs is a server on the node, and what it serves, mounted.
type nfs struct{ dir string }

func newNFS(k *lab.Kit) nfs {
	k.Helper()
	exported := k.TempDir()
	for _, module := range []string{"nfsd", "nfs"} {
		lab.Administer(k.T, "modprobe", module)
	}
	lab.Administer(k.T, "mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
	k.Cleanup(func() { lab.Administer(k.T, "umount", "/proc/fs/nfsd") })
	lab.Administer(k.T, "exportfs", "-o", "rw,fsid=0,insecure,no_root_squash,no_subtree_check", "127.0.0.1:"+exported)
	k.Cleanup(func() { lab.Administer(k.T, "exportfs", "-ua") })
	lab.Administer(k.T, "rpc.mountd", "--no-nfs-version", "3")
	k.Cleanup(func() { lab.Administer(k.T, "pkill", "rpc.mountd") })
	serveNFS(k.T)
	k.Cleanup(func() { lab.Administer(k.T, "rpc.nfsd", "0") })
	dir := k.TempDir()
	lab.Administer(k.T, "mount", "-t", "nfs4", "-o", "hard,timeo=600", "127.0.0.1:/", dir)
	k.Cleanup(func() { lab.Administer(k.T, "umount", "-f", "-l", dir) })
	return nfs{dir}
}

func serveNFS(t *testing.T) {
	t.Helper()
	lab.Administer(t, "rpc.nfsd", "--no-nfs-version", "3", "--grace-time", "10", "--lease-time", "10", "2")
}

// hang stops the server until the end of the test. A process that opens a path there waits until
// then, and sometimes so does an unmount, with or without "-f" (nfs4_destroy_clientid).
func (nfs) hang(t *testing.T) {
	t.Helper()
	lab.Administer(t, "rpc.nfsd", "0")
	t.Cleanup(func() { serveNFS(t) })
}
