package node

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/layers"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// The node that the goals are set for.
const (
	benchPods      = 250
	mountsOfOnePod = 20 // 5,000 in all
)

// BenchmarkCreateContainer measures the event on a node with 250 pods and 5,000 mounts of the real kernel. It
// excludes NRI's messages, which BenchmarkMessages of package plugin measures. Before each event the pod's CSI
// volume is mounted, so the mount table changes each time. The time to read the table is reported apart.
func BenchmarkCreateContainer(b *testing.B) {
	node, mountinfo := newMountedNode(b, benchPods)
	storage := benchStorage(b, mountinfo)
	n := newNode(b, treeOfPods(b))
	n.storage, n.kubelet = storage, node.dir("kubelet")
	n.layers = layers.New(inventory.Layers{Default: inventory.Layer{Dir: node.dir("containerd")}})
	storage.Pin(node.dir("containerd"))
	s := &session{n, handlerDeadline}
	refresh := func() {
		if err := storage.Refresh(b.Context()); err != nil {
			b.Error(err)
		}
	}
	create := func(sb *Sandbox, c *Container) {
		if adjust, err := s.CreateContainer(b.Context(), sb, c); err != nil || adjust == nil {
			b.Errorf("%v, %v: is %s on a disk that sysfs knows?", adjust, err, node)
		}
	}
	for i := range benchPods {
		sb, db, sidecar := benchPod(i, string(node))
		create(sb, db)
		create(sb, sidecar)
	}
	next := func(i int) (*Sandbox, *Container) {
		sb, db, _ := benchPod(i%benchPods, string(node))
		n.RemovedPod(sb.ID)
		node.remountVolume(b, i%benchPods)
		return sb, db
	}

	var creates, seconds, reads []time.Duration
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		sb, c := next(i)
		b.StartTimer()
		reads = append(reads, timed(refresh))
		creates = append(creates, timed(func() { create(sb, c) }))
		// This is the event of another pod, while the processor's caches are warm. It shows how much of the
		// time above is the effect of reading the table on the caches.
		b.StopTimer()
		sb, c, _ = benchPod((i+1)%benchPods, string(node))
		n.RemovedPod(sb.ID)
		seconds = append(seconds, timed(func() { create(sb, c) }))
		b.StartTimer()
	}
	report(b, "create", creates)
	report(b, "second", seconds)
	report(b, "table", reads)
	b.ReportMetric(float64(len(storage.Mounts().All())), "mounts")
	reportAllocations(b, refresh, func(i int) func() {
		sb, c := next(i)
		return func() { create(sb, c) }
	})
}

// treeOfPods returns a tree in which a cgroup has the files of the io controller, as on any node with pods.
func treeOfPods(b *testing.B) *cgroupfs.Hierarchy {
	b.Helper()
	h, dir := tree(b, podCgroup)
	for file, text := range map[string]string{"cgroup.controllers": "io\n", "io.max": "", "io.weight": ""} {
		write(b, filepath.Join(dir, filepath.Dir(podCgroup), file), text)
	}
	return h
}

func benchStorage(b *testing.B, mountinfo string) *storage.Storage {
	b.Helper()
	s, err := storage.Open(storage.Config{Sys: os.DirFS("/sys"), Mountinfo: mountinfo, HostRoot: "/"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// reportAllocations measures apart, since reading the allocator's figures stops the world.
func reportAllocations(b *testing.B, refresh func(), next func(i int) (create func())) {
	b.Helper()
	const rounds = 50
	var table, own allocations
	for i := range rounds {
		create := next(i)
		table.add(refresh)
		own.add(create)
	}
	own.report(b, "create", rounds)
	table.report(b, "table", rounds)
}

// BenchmarkStartContainer is the event for a container with limits that are in its OCI
// spec already. It runs under the runtime's lock.
func BenchmarkStartContainer(b *testing.B) {
	h, dir := tree(b, podCgroup, cgroupOf("a"))
	write(b, filepath.Join(dir, filepath.Dir(podCgroup), "cgroup.controllers"), "io\n") // as beside any pod
	n := newNode(b, h)
	s := &session{n, handlerDeadline}
	sb := limited("rootfs wbps=1Mi")
	var starts []time.Duration
	for b.Loop() {
		b.StopTimer()
		n.RemovedPod(sb.ID)
		if _, err := s.CreateContainer(b.Context(), sb, ctr("a")); err != nil {
			b.Fatal(err)
		}
		for _, cgroup := range []string{podCgroup, cgroupOf("a")} {
			_ = unix.Removexattr(filepath.Join(dir, cgroup), record.Xattr) // the first time there is none
			write(b, filepath.Join(dir, cgroup, "io.max"), "")
		}
		write(b, filepath.Join(dir, cgroupOf("a"), "io.max"), "254:0 rbps=max wbps=1048576 riops=max wiops=max\n")
		b.StartTimer()
		starts = append(starts, timed(func() {
			if err := s.StartContainer(b.Context(), sb, ctr("a")); err != nil {
				b.Error(err)
			}
		}))
	}
	report(b, "start", starts)
}

// timed runs fn in a goroutine of its own, as the runtime's events do. The benchmark's goroutine is bound to
// its thread. In it, a switch to another goroutine would switch threads too, which does not happen in the
// plugin.
func timed(fn func()) time.Duration {
	took := make(chan time.Duration)
	go func() {
		began := time.Now()
		fn()
		took <- time.Since(began)
	}()
	return <-took
}

func report(b *testing.B, what string, d []time.Duration) {
	slices.Sort(d)
	b.ReportMetric(float64(d[len(d)/2].Nanoseconds())/1e3, what+"-p50-µs")
	b.ReportMetric(float64(d[len(d)*99/100].Nanoseconds())/1e3, what+"-p99-µs")
}

// allocations counts the allocations of a part of an iteration.
type allocations struct{ bytes, objects uint64 }

func (a *allocations) add(fn func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	a.bytes += after.TotalAlloc - before.TotalAlloc
	a.objects += after.Mallocs - before.Mallocs
}

func (a *allocations) report(b *testing.B, what string, rounds uint64) {
	b.ReportMetric(float64(a.bytes/rounds), what+"-B")
	b.ReportMetric(float64(a.objects/rounds), what+"-allocs")
}

// BenchmarkReconcile measures a pass over a node of 250 pods with two containers each, some of which have lost
// their limits. A separate pass counts the pods to which a pass without a change writes.
//
// The cgroups are plain files, or real ones below the one that NRI_BLKIO_BENCH_CGROUPS names.
func BenchmarkReconcile(b *testing.B) {
	n := newReconciledNode(b)
	b.Run("changed=0", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n.p.pass(b.Context())
		}
		b.ReportMetric(float64(n.writes(b)), "writes")
		if n.takeOff(b, 0); n.writes(b) != 1 {
			b.Fatal("a write was not counted")
		}
	})
	for _, changed := range []int{1, 10, benchPods} {
		b.Run(fmt.Sprintf("changed=%d", changed), func(b *testing.B) {
			n.p.pass(b.Context())
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				for i := range changed {
					n.takeOff(b, i)
				}
				b.StartTimer()
				n.p.pass(b.Context())
			}
			n.check(b, changed)
		})
	}
}

// errorCount counts the errors in the log.
type errorCount struct{ n int }

func (c *errorCount) Levels() []logrus.Level { return []logrus.Level{logrus.ErrorLevel} }

func (c *errorCount) Fire(*logrus.Entry) error { c.n++; return nil }

// readOnly opens a tree through a detached read-only mount.
func readOnly(b *testing.B, dir string) *cgroupfs.Hierarchy {
	b.Helper()
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		b.Fatalf("a read-only mount takes root: %v", err)
	}
	b.Cleanup(func() { unix.Close(fd) })
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		b.Fatal(err)
	}
	h, err := cgroupfs.OpenTree(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { h.Close() })
	return h
}

// reconciledNode is a node with all limits in force.
type reconciledNode struct {
	p        *Node
	dir      string // of the cgroups
	isKernel bool   // they are real
	disk     blkio.Disk
}

func newReconciledNode(b *testing.B) *reconciledNode {
	b.Helper()
	n := &reconciledNode{disk: dataDisk}
	var cgroups []string
	for i := range benchPods {
		cgroups = append(cgroups, podSlice(i), benchScope(i, "db"), benchScope(i, "sidecar"))
	}
	var h *cgroupfs.Hierarchy
	if parent := os.Getenv("NRI_BLKIO_BENCH_CGROUPS"); parent != "" {
		n.isKernel = true
		h = n.makeCgroups(b, parent, cgroups)
	} else {
		h, n.dir = tree(b, cgroups...)
		for _, cg := range append(cgroups, "kubepods.slice") { // as each real one has it
			line := fmt.Sprintf("%s rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n", n.disk.Dev)
			write(b, filepath.Join(n.dir, cg, "io.stat"), line)
		}
		others := n.disk.Dev.String() + " rbytes=1459200 wbytes=0\n254:99 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n"
		write(b, filepath.Join(n.dir, "kubepods.slice", "io.stat"), others) // some other pod has its own disk
	}
	n.p = newNode(b, h)
	n.p.storage = onlyOn(n.disk)
	for i := range benchPods {
		sb, db, sidecar := benchPod(i, "/var/lib")
		for _, c := range []*Container{db, sidecar} {
			if _, err := n.p.create(b.Context(), sb, c, false); err != nil {
				b.Fatal(err)
			}
			if err := n.p.start(b.Context(), sb, c, true); err != nil {
				b.Fatal(err)
			}
		}
	}
	n.p.pass(b.Context())
	n.completeFiles(b)
	n.p.pass(b.Context())
	n.check(b, benchPods)
	return n
}

func benchScope(i int, name string) string {
	id := fmt.Sprintf("%064x", 1000+i)
	return podSlice(i) + "/cri-containerd-" + name + id[len(name):] + ".scope"
}

// writes makes a pass in which each write fails, because the pass sees the cgroups through a read-only mount.
// It returns the number of failures, at most one for each pod.
func (n *reconciledNode) writes(b *testing.B) int {
	b.Helper()
	errors := &errorCount{}
	log := n.p.log.(*logrus.Logger)
	log.AddHook(errors)
	writable := n.p.cgroups
	defer func() {
		n.p.cgroups = writable
		log.ReplaceHooks(logrus.LevelHooks{})
	}()
	n.p.cgroups = readOnly(b, n.dir)
	n.p.pass(b.Context())
	return errors.n
}

// completeFiles completes the plain files after writes to a part of a cgroup's limits, as the kernel does.
func (n *reconciledNode) completeFiles(b *testing.B) {
	if n.isKernel {
		return
	}
	for _, g := range n.p.groups() {
		plan := n.p.planFor(g)
		for _, t := range append(plan.Containers, plan.Pod) {
			line := blkio.DevLimits{Dev: n.disk.Dev, Limits: t.Want.DevLimits()[n.disk.Dev]}
			write(b, filepath.Join(n.dir, t.Cgroup, "io.max"), line.String()+"\n")
		}
	}
}

// takeOff removes the limits of a pod's containers, as another program would.
func (n *reconciledNode) takeOff(b *testing.B, i int) {
	for _, name := range []string{"db", "sidecar"} {
		none := ""
		if n.isKernel {
			none = n.disk.Dev.String() + " rbps=max wbps=max"
		}
		write(b, filepath.Join(n.dir, benchScope(i, name), "io.max"), none)
	}
}

// check reports whether the first pods have their limits.
func (n *reconciledNode) check(b *testing.B, pods int) {
	b.Helper()
	for i := range pods {
		limits, err := n.p.cgroups.Cgroup(benchScope(i, "db")).ReadIOMax()
		if err != nil || limits[n.disk.Dev][blkio.Wbps] != 50<<20 {
			b.Fatalf("pod %d: %v, %v", i, limits, err)
		}
	}
}
