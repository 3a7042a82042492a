package why

import (
	"fmt"
	"maps"
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
			{Cause: wait.Limit, Op: wait.Direct, Cgroup: id, By: id, Dev: vdb},
			{Cause: wait.Device, Op: wait.Direct, Cgroup: id, Dev: vdb},
			{Cause: wait.Scheduler, Op: wait.Direct, Cgroup: id, Dev: vdb},
			{Cause: wait.IO, Cgroup: id},
			{Cause: wait.Journal, Cgroup: id, Dev: vdb},
		} {
			out.At[at] = wait.Time{Sum: spent, Wall: spent}
		}
	}
	return out, nil
}

// newPods makes the cgroups of pods, each with a sandbox and two containers. Each container has a limit, and the pod a backstop. It returns
// the containers by the IDs of their cgroups.
func newPods(b *testing.B, pods int) (*cgroupfs.Hierarchy, map[uint64]string) {
	b.Helper()
	dir := fakenode.MemoryDir(b)
	files, limited := map[string]string{"cgroup.controllers": "io memory\n"}, []string{}
	for i := range pods {
		pod := fmt.Sprintf("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%08d_1111_2222_3333_444444444444.slice", i)
		for _, at := range []string{"", "/cri-containerd-" + strings.Repeat("a", 64) + ".scope", "/cri-containerd-" + strings.Repeat("b", 64) + ".scope", "/cri-containerd-" + strings.Repeat("f", 64) + ".scope"} {
			files[pod+at+"/io.stat"] = fmt.Sprintf("254:16 rbytes=%d wbytes=0 rios=0 wios=0 dbytes=0 dios=0\n254:0 rbytes=9 wbytes=9 rios=1 wios=1 dbytes=0 dios=0\n", i)
			files[pod+at+"/io.pressure"] = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
			files[pod+at+"/io.max"] = ""
			if !strings.HasSuffix(at, "f.scope") {
				files[pod+at+"/io.max"] = "254:16 rbps=max wbps=1048576 riops=max wiops=max\n"
				limited = append(limited, pod+at)
			}
		}
	}
	fakenode.WriteFiles(b, dir, files)
	tree, err := cgroupfs.OpenTree(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { tree.Close() })
	for i, at := range limited {
		setting := policy.Setting{
			Value:  blkio.Value{Address: blkio.Address{Key: blkio.Wbps, Dev: vdb}, Amount: 1 << 20},
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
		return !slices.Contains(limited, at) || !strings.HasSuffix(at, ".scope")
	})
	return tree, ids
}

// BenchmarkTop measures a refresh of top on a node with 250 pods, all of whose 500 containers wait.
func BenchmarkTop(b *testing.B) {
	const pods = 250
	tree, ids := newPods(b, pods)
	w, err := NewWatch(Node{
		Cgroups: tree, Btrfs: noBtrfs, Disk: func(dev blkio.Dev) string { return dev.String() },
		Attach: func() (Observer, error) { return busy{ids, new(int)}, nil },
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
