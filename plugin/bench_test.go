package plugin

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

const (
	benchPods   = 250
	benchMounts = 5000
)

// BenchmarkCreateContainer is the handler on a node with 250 pods and 5,000
// mounts of the real kernel, one mount added before each create. The mount
// table is read in each iteration; what that adds is reported apart.
func BenchmarkCreateContainer(b *testing.B) {
	base, mountinfo := mountNamespace(b)
	storage, err := blkio.OpenStorage(blkio.StorageConfig{Sys: os.DirFS("/sys"), Mountinfo: mountinfo, HostRoot: "/"})
	if err != nil {
		b.Fatal(err)
	}
	defer storage.Close()
	h, _ := tree(b)
	p := newPlugin(b, h)
	p.storage, p.rootfs = storage, base
	populate(b, p, base)

	var creates, reads []time.Duration
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		dir := addMount(b, base, i)
		sb, c := benchPod(fmt.Sprintf("new%d", i), dir)
		b.StartTimer()
		began := time.Now()
		if err := storage.Refresh(b.Context()); err != nil {
			b.Fatal(err)
		}
		read := time.Now()
		adjust, err := p.create(b.Context(), sb, c, false)
		done := time.Now()
		if err != nil || adjust == nil {
			b.Fatalf("%v, %v", adjust, err)
		}
		reads = append(reads, read.Sub(began))
		creates = append(creates, done.Sub(read))
		b.StopTimer()
		p.removedPod(sb.GetId())
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	report(b, "create", creates)
	report(b, "table", reads)
}

// BenchmarkReconcile is a pass over a node on which nothing changed. The
// cgroup files lie on a disk's filesystem here; make bench does the same on
// the node's cgroupfs.
func BenchmarkReconcile(b *testing.B) {
	var cgroups []string
	for i := range benchPods {
		pod := fmt.Sprintf("kubepods.slice/kubepods-pod%d.slice", i)
		cgroups = append(cgroups, pod, fmt.Sprintf("%s/cri-containerd-id%d.scope", pod, i))
	}
	h, dir := tree(b, cgroups...)
	p := newPlugin(b, h)
	for i := range benchPods {
		sb, c := benchPod(fmt.Sprint(i), "/mnt/data")
		if _, err := p.create(b.Context(), sb, c, false); err != nil {
			b.Fatal(err)
		}
		write(b, filepath.Join(dir, cgroups[2*i], "io.max"), "")
		if err := p.start(b.Context(), sb, c); err != nil {
			b.Fatal(err)
		}
	}
	// The fake files keep one line each, which is all that these pods have.
	p.reconcileAll(b.Context())
	b.ReportAllocs()
	for b.Loop() {
		p.reconcileAll(b.Context())
	}
}

func report(b *testing.B, what string, d []time.Duration) {
	slices.Sort(d)
	b.ReportMetric(float64(d[len(d)/2].Nanoseconds())/1e3, what+"-p50-µs")
	b.ReportMetric(float64(d[len(d)*99/100].Nanoseconds())/1e3, what+"-p99-µs")
}

// benchPod is a pod with one container of 15 mounts and one limit.
func benchPod(id, dir string) (*api.PodSandbox, *api.Container) {
	sb := sandbox(map[string]string{limitsKey + "container.db": "/data wbps=50Mi rbps=100Mi"})
	sb.Id, sb.Linux.CgroupParent = "sb"+id, "/kubepods.slice/kubepods-pod"+id+".slice"
	mounts := []*api.Mount{bind(dir, "/data")}
	for i := range 14 {
		mounts = append(mounts, bind(dir, fmt.Sprintf("/data%d", i)))
	}
	c := ctr("db", mounts...)
	c.Id, c.PodSandboxId = "id"+id, sb.Id
	c.Linux.CgroupsPath = "kubepods-pod" + id + ".slice:cri-containerd:id" + id
	return sb, c
}

func populate(b *testing.B, p *Plugin, base string) {
	b.Helper()
	for i := range benchPods {
		sb, c := benchPod(fmt.Sprint(i), filepath.Join(base, fmt.Sprint(i)))
		if _, err := p.create(b.Context(), sb, c, false); err != nil {
			b.Fatal(err)
		}
	}
}

// mountNamespace gives this thread a mount namespace with benchMounts bind
// mounts of a disk's directories, and returns their parent and the thread's
// mountinfo. The thread is not given back, so that it ends with the benchmark.
func mountNamespace(b *testing.B) (base, mountinfo string) {
	b.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		b.Fatalf("a mount namespace takes root: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		b.Fatal(err)
	}
	base = b.TempDir()
	for i := range benchMounts {
		addMount(b, base, i)
	}
	b.Cleanup(func() {
		for i := range benchMounts {
			unix.Unmount(filepath.Join(base, fmt.Sprint(i)), unix.MNT_DETACH) // best effort before TempDir's removal
		}
	})
	return base, fmt.Sprintf("/proc/self/task/%d/mountinfo", unix.Gettid())
}

func addMount(b *testing.B, base string, i int) string {
	b.Helper()
	dir := filepath.Join(base, fmt.Sprint(i))
	if i >= benchMounts {
		b.Fatal("more iterations than mounts")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		b.Fatal(err)
	}
	return dir
}
