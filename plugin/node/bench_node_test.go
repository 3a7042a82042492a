package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// benchPod returns a pod with two containers. Of db's 15 mounts six are new filesystems, and five are those
// that the kubelet and containerd add to each container. The others are volumes: one of CSI, two emptyDirs, the
// token.
func benchPod(i int, base string) (sb *Sandbox, db, sidecar *Container) {
	id := fmt.Sprintf("%064x", 1000+i)
	sb = sandbox(map[string]string{
		limitsKey + "container.db":          "/data rbps=100Mi wbps=50Mi",
		limitsKey + "containers":            "* wbps=20Mi",
		"kubernetes.io/config.source":       "api",
		"kubernetes.io/config.seen":         "2026-01-01T00:00:00.000000000Z",
		"checksum/config":                   id,
		"prometheus.io/scrape":              "true",
		"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z",
	})
	sb.ID, sb.UID, sb.Name = id, podUID(i), fmt.Sprintf("db-%d", i)
	sb.Cgroup = "/" + podSlice(i)
	container := func(name string, mounts ...inventory.Mount) *Container {
		c := ctr(name, mounts...)
		c.ID, c.Sandbox = name+id[len(name):], id
		c.Cgroup = filepath.Base(podSlice(i)) + ":cri-containerd:" + c.ID
		return c
	}
	pod, cri := podDir(base, i), sandboxDir(base, i)
	injected := []inventory.Mount{
		{Type: "proc", Source: "proc", Destination: "/proc"},
		{Type: "tmpfs", Source: "tmpfs", Destination: "/dev"},
		{Type: "devpts", Source: "devpts", Destination: "/dev/pts"},
		{Type: "mqueue", Source: "mqueue", Destination: "/dev/mqueue"},
		{Type: "sysfs", Source: "sysfs", Destination: "/sys", Options: inventory.ParseOptions("nosuid", "ro")},
		{Type: "cgroup", Source: "cgroup", Destination: "/sys/fs/cgroup", Options: inventory.ParseOptions("nosuid", "ro")},
		bind(pod+"/etc-hosts", "/etc/hosts", "rbind", "rprivate", "rw"),
		bind(pod+"/containers/db/8a3c5d7e", "/dev/termination-log", "rbind", "rprivate", "rw"),
		bind(cri+"/hostname", "/etc/hostname", "rbind", "rprivate", "rw"),
		bind(cri+"/resolv.conf", "/etc/resolv.conf", "rbind", "rprivate", "rw"),
		bind(cri+"/shm", "/dev/shm", "rbind", "rprivate", "rw"),
		bind(pod+"/volumes/kubernetes.io~projected/kube-api-access-0", "/var/run/secrets/kubernetes.io/serviceaccount", "rbind", "rprivate", "ro"),
	}
	sidecar = container("sidecar", append(slices.Clone(injected), bind(pod+"/volumes/kubernetes.io~empty-dir/tmp", "/tmp", "rbind", "rw"))...)
	db = container("db", append(injected,
		bind(pod+"/volumes/kubernetes.io~empty-dir/tmp", "/tmp", "rbind", "rw"),
		bind(pod+"/volumes/kubernetes.io~empty-dir/cache", "/cache", "rbind", "rw"),
		bind(volumeDir(base, i), "/data", "rbind", "rw"))...)
	return sb, db, sidecar
}

func podUID(i int) string { return fmt.Sprintf("%08x-98b4-4e53-8c3e-7d8d2d5a5b1b", i) }

func podSlice(i int) string { return fmt.Sprintf("kubepods.slice/kubepods-pod%04d.slice", i) }

func podDir(base string, i int) string { return base + "/kubelet/pods/" + podUID(i) }

func volumeDir(base string, i int) string {
	return podDir(base, i) + "/volumes/kubernetes.io~csi/pvc-" + podUID(i) + "/mount"
}

func sandboxDir(base string, i int) string {
	return fmt.Sprintf("%s/containerd/io.containerd.grpc.v1.cri/sandboxes/%064x", base, 1000+i)
}

// mountedNode is a directory with the mounts of a node.
type mountedNode string

func (n mountedNode) dir(name string) string { return string(n) + "/" + name }

// newMountedNode mounts, in a namespace of this thread's own, the mounts of a node with so many pods. It
// returns the thread's mountinfo too. The thread is not given back, so that it ends with the benchmark.
func newMountedNode(b *testing.B, pods int) (n mountedNode, mountinfo string) {
	b.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		b.Fatalf("a mount namespace takes root: %v", err)
	}
	n = mountedNode(b.TempDir())
	n.mount(b, "", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	n.mount(b, string(n), string(n), "", unix.MS_BIND, "")
	b.Cleanup(func() {
		_ = unix.Unmount(string(n), unix.MNT_DETACH) // the mounts below go with it; the removal of TempDir reports any mount that is left
	})
	for i := range 4 {
		n.mkdir(b, n.layer(i))
	}
	for i := range pods {
		n.addPod(b, i)
	}
	return n, fmt.Sprintf("/proc/self/task/%d/mountinfo", unix.Gettid())
}

// addPod makes the directories of a pod and its mountsOfOnePod mounts. These are tokens and secrets, the
// sandbox's shm, overlays of the sandbox and of running or ended containers, the volume and its global mount.
func (n mountedNode) addPod(b *testing.B, i int) {
	pod, cri := podDir(string(n), i), sandboxDir(string(n), i)
	for _, dir := range []string{"/containers/db", "/volumes/kubernetes.io~empty-dir/tmp", "/volumes/kubernetes.io~empty-dir/cache"} {
		n.mkdir(b, pod+dir)
	}
	n.mkdir(b, cri)
	for _, file := range []string{pod + "/etc-hosts", pod + "/containers/db/8a3c5d7e", cri + "/hostname", cri + "/resolv.conf"} {
		write(b, file, "")
	}
	n.mount(b, "shm", n.mkdir(b, cri+"/shm"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=65536k")
	for k := range 8 {
		dir := n.mkdir(b, fmt.Sprintf("%s/volumes/kubernetes.io~projected/kube-api-access-%d", pod, k))
		n.mount(b, "tmpfs", dir, "tmpfs", 0, "size=170000k")
	}
	lower := fmt.Sprintf("lowerdir=%s:%s:%s:%s", n.layer(0), n.layer(1), n.layer(2), n.layer(3))
	const others = 1 + 8 + 2 // shm, tokens, the volume twice
	for k := range mountsOfOnePod - others {
		dir := n.mkdir(b, fmt.Sprintf("%s/run/io.containerd.runtime.v2.task/k8s.io/%060x%04x/rootfs", n, i, k))
		n.mount(b, "overlay", dir, "overlay", unix.MS_RDONLY, lower)
	}
	global := n.mkdir(b, fmt.Sprintf("%s/kubelet/plugins/kubernetes.io/csi/driver/%064x/globalmount", n, i))
	n.mount(b, global, global, "", unix.MS_BIND, "")
	n.mkdir(b, volumeDir(string(n), i))
	n.mountVolume(b, i)
}

func (n mountedNode) layer(i int) string {
	return fmt.Sprintf("%s/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/%d/fs", n, 4100+i)
}

func (n mountedNode) mountVolume(b *testing.B, i int) {
	n.mount(b, volumeDir(string(n), i), volumeDir(string(n), i), "", unix.MS_BIND, "")
}

func (n mountedNode) remountVolume(b *testing.B, i int) {
	if err := unix.Unmount(volumeDir(string(n), i), unix.MNT_DETACH); err != nil {
		b.Fatal(err)
	}
	n.mountVolume(b, i)
}

func (n mountedNode) mkdir(b *testing.B, dir string) string {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	return dir
}

func (n mountedNode) mount(b *testing.B, source, target, fstype string, flags uintptr, data string) {
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		b.Fatalf("mount %s at %s: %v", source, target, err)
	}
}

// BenchmarkResolve measures how long it takes to find the disks of every mount of such a node. Cold is the work
// of the first start: to read the table, and to resolve each of its mounts for the first time. The resolution
// is reported apart as well. Known is the answer for one mount after that.
func BenchmarkResolve(b *testing.B) {
	_, mountinfo := newMountedNode(b, benchPods)
	open := func() *storage.Storage {
		s, err := storage.Open(storage.Config{Sys: os.DirFS("/sys"), Mountinfo: mountinfo, HostRoot: "/"})
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	resolve := func(s *storage.Storage) (disks int) {
		for _, m := range s.Mounts().All() {
			disks += len(s.Resolve(context.Background(), m.Mountpoint).Disks)
		}
		return disks
	}
	var cold, resolving, known []time.Duration
	var mounts, disks int
	for b.Loop() {
		var s *storage.Storage
		read := timed(func() { s = open() })
		mounts = len(s.Mounts().All())
		took := timed(func() { disks = resolve(s) })
		cold, resolving = append(cold, read+took), append(resolving, took)
		known = append(known, timed(func() { resolve(s) })/time.Duration(mounts))
		s.Close()
	}
	if disks == 0 {
		b.Fatal("no mount is on a disk that sysfs knows")
	}
	report(b, "cold", cold)
	report(b, "resolving", resolving)
	report(b, "known", known)
	b.ReportMetric(float64(mounts), "mounts")
}
