package why

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/wait"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// busy is an observer with waits of each cgroup, for several causes.
type busy struct {
	ids   map[uint64]string
	dev   blkio.Dev
	reads *int
}

func (busy) Unknown() map[wait.Cause]error { return nil }
func (busy) Close() error                  { return nil }
func (b busy) Read() (wait.Times, error) {
	*b.reads++
	spent := time.Duration(*b.reads) * time.Second
	out := wait.Times{Duration: spent, At: map[wait.Place]wait.Time{}}
	for id := range b.ids {
		for _, at := range []wait.Place{
			{Cause: wait.Limit, Op: wait.Direct, Cgroup: id, By: id, Dev: b.dev},
			{Cause: wait.Device, Op: wait.Direct, Cgroup: id, Dev: b.dev},
			{Cause: wait.Scheduler, Op: wait.Direct, Cgroup: id, Dev: b.dev},
			{Cause: wait.IO, Cgroup: id},
			{Cause: wait.Journal, Cgroup: id, Dev: b.dev},
		} {
			out.At[at] = wait.Time{Sum: spent, Wall: spent}
		}
	}
	return out, nil
}

// podsOf has the cgroups of pods.
type podsOf struct {
	dir string
	dev blkio.Dev // of the limits
	// containers are all cgroups of containers, sandboxes included; limited are those with a limit, by pods: the pod, and two containers.
	containers, limited []string
}

// newPods makes the cgroups of pods, each with a sandbox and two containers. Each container has a limit, and the pod a backstop. It returns
// the containers by the IDs of their cgroups. The cgroups are plain files, or real ones below the one that NRI_BLKIO_BENCH_CGROUPS names.
func newPods(b *testing.B, pods int) (*cgroupfs.Hierarchy, busy) {
	b.Helper()
	p := podsOf{dev: vdb}
	for i := range pods {
		pod := fmt.Sprintf("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%08d_1111_2222_3333_444444444444.slice", i)
		p.limited = append(p.limited, pod)
		for _, id := range []string{"a", "b", "f"} {
			container := pod + "/cri-containerd-" + strings.Repeat(id, 64) + ".scope"
			if p.containers = append(p.containers, container); id != "f" {
				p.limited = append(p.limited, container)
			}
		}
	}
	open := cgroupfs.OpenTree
	if parent := os.Getenv("NRI_BLKIO_BENCH_CGROUPS"); parent != "" {
		open = cgroupfs.OpenHierarchy
		p.makeReal(b, parent)
	} else {
		p.makeFiles(b)
	}
	tree, err := open(p.dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { tree.Close() })
	for i, at := range p.limited {
		setting := policy.Setting{
			Value:  blkio.Value{Address: blkio.Address{Key: blkio.Wbps, Dev: p.dev}, Amount: 1 << 20},
			Source: policy.Source{Kind: policy.FromAnnotation, Name: "limits.blkio.noderesource.dev/containers", Entry: 1, Target: "/data"},
		}
		r := record.Record{Kind: record.KindContainer, Namespace: "prod", Pod: fmt.Sprint("pod-", i/3), UID: fmt.Sprint(i / 3), Container: fmt.Sprint("c", i%3)}
		if i%3 == 0 {
			r.Kind, r.Container, setting.Source = record.KindPod, "", policy.Source{Kind: policy.FromBackstop}
		}
		r.Settings = policy.NewSettings(setting)
		if err := record.Write(tree.Cgroup(at), &r); err != nil {
			b.Fatal(err)
		}
	}
	ids, err := tree.IDs()
	if err != nil {
		b.Fatal(err)
	}
	maps.DeleteFunc(ids, func(_ uint64, at string) bool {
		return !slices.Contains(p.limited, at) || !strings.HasSuffix(at, ".scope")
	})
	return tree, busy{ids, p.dev, new(int)}
}

// makeFiles makes the cgroups of plain files.
func (p *podsOf) makeFiles(b *testing.B) {
	b.Helper()
	p.dir = fakenode.MemoryDir(b)
	files := map[string]string{"cgroup.controllers": "io memory\n"}
	for _, at := range slices.Concat(p.containers, p.limited) {
		files[at+"/io.stat"] = "254:16 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n254:0 rbytes=9 wbytes=9 rios=1 wios=1 dbytes=0 dios=0\n"
		files[at+"/io.pressure"] = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
		files[at+"/io.max"] = ""
	}
	for _, at := range p.limited {
		files[at+"/io.max"] = p.dev.String() + " rbps=max wbps=1048576 riops=max wiops=max\n"
	}
	fakenode.WriteFiles(b, p.dir, files)
}

// makeReal makes real cgroups, with limits on vdb and a read of it in each container, and removes them with the benchmark.
func (p *podsOf) makeReal(b *testing.B, parent string) {
	b.Helper()
	number, err := os.ReadFile("/sys/block/vdb/dev")
	if err == nil {
		p.dev, err = blkio.ParseDev(strings.TrimSpace(string(number)))
	}
	if err != nil {
		b.Fatal(err)
	}
	p.dir = filepath.Join(parent, "nri-blkio-top")
	write := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0); err != nil {
			b.Fatal(err)
		}
	}
	write(filepath.Join(parent, "cgroup.subtree_control"), "+io")
	var mkdir func(dir string)
	mkdir = func(dir string) {
		if _, err := os.Stat(dir); err == nil {
			return
		}
		mkdir(filepath.Dir(dir))
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { os.Remove(dir) })
		if filepath.Ext(dir) != ".scope" {
			write(filepath.Join(dir, "cgroup.subtree_control"), "+io")
		}
	}
	for _, at := range p.containers {
		dir := filepath.Join(p.dir, at)
		mkdir(dir)
		read := exec.Command("sh", "-c", `echo $$ >"$0/cgroup.procs" && exec dd status=none if=/dev/vdb of=/dev/null bs=4k count=1 iflag=direct`, dir)
		if out, err := read.CombinedOutput(); err != nil {
			b.Fatalf("%v: %v: %s", read, err, out)
		}
	}
	for _, at := range p.limited {
		write(filepath.Join(p.dir, at, "io.max"), p.dev.String()+" wbps=1048576")
	}
}

// BenchmarkTop measures a refresh of top on a node with 250 pods, all of whose 500 containers wait.
func BenchmarkTop(b *testing.B) {
	const pods = 250
	tree, waits := newPods(b, pods)
	w, err := NewWatch(Node{
		Cgroups: tree, Btrfs: noBtrfs, Disk: func(dev blkio.Dev) string { return dev.String() },
		Attach: func() (Observer, error) { return waits, nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	begin := cpuTime(b)
	b.ReportAllocs()
	for b.Loop() {
		m, err := w.Next()
		if err != nil {
			b.Fatal(err)
		}
		if top := ExplainAll(m); len(top.Rows) != 2*pods {
			b.Fatal(len(top.Rows))
		}
	}
	b.ReportMetric(float64((cpuTime(b)-begin).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// cpuTime returns the CPU time of this process, those of the kernel and of the garbage collector included.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
