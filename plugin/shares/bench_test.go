package shares

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// BenchmarkPass measures a pass over 250 pods with a sandbox and a container each. The files are plain files in
// memory, so it excludes the time in which the kernel sums up the counters of the processors.
func BenchmarkPass(b *testing.B) {
	benchEach(b, 2*time.Second, func(k *Keeper, now time.Time) error {
		_, err := k.Pass(now, Demand{Disks: []blkio.Dev{vda}})
		return err
	})
}

// BenchmarkLook measures a look at the same pods.
func BenchmarkLook(b *testing.B) {
	benchEach(b, 250*time.Millisecond, func(k *Keeper, now time.Time) error {
		err := k.Look(now)
		k.Uses(vda)
		return err
	})
}

// benchEach measures a function that is called at an interval, with several numbers of active containers.
func benchEach(b *testing.B, interval time.Duration, do func(k *Keeper, now time.Time) error) {
	b.Helper()
	for _, active := range []int{0, 25, 250} {
		b.Run(fmt.Sprintf("%d active", active), func(b *testing.B) {
			dir, err := os.MkdirTemp("/dev/shm", "nri-blkio-shares-")
			if err != nil {
				dir = b.TempDir()
			}
			b.Cleanup(func() { os.RemoveAll(dir) })
			paths := benchTree(b, dir)
			tree, err := cgroupfs.OpenFake(dir, cgroupfs.Fake{Write: func(string, string) error { return nil }})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { tree.Close() })
			k, now := NewKeeper(tree, cgroupfs.Cgroup.Write), time.Unix(1000, 0)
			if _, err := k.Pass(now, Demand{Disks: []blkio.Dev{vda}}); err != nil {
				b.Fatal(err)
			}
			var cpu time.Duration
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				for _, p := range paths[:active] {
					for ; p != "."; p = path.Dir(p) {
						benchWrite(b, filepath.Join(dir, p, "io.stat"), fmt.Sprintf("254:0 rbytes=%d wbytes=0 rios=%d wios=0 dbytes=0 dios=0\n", n, n))
					}
				}
				b.StartTimer()
				now = now.Add(interval)
				began := cpuTime(b)
				if err := do(k, now); err != nil {
					b.Fatal(err)
				}
				cpu += cpuTime(b) - began
			}
			b.ReportMetric(float64(cpu)/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpuTime returns the processor time of this process, which a busy machine hardly changes.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchTree makes the cgroups, and returns the paths of the containers.
func benchTree(b *testing.B, dir string) (containers []string) {
	b.Helper()
	benchWrite(b, filepath.Join(dir, "cgroup.controllers"), "io\n")
	for i := range 250 {
		pod := fmt.Sprintf("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%d.slice", i)
		containers = append(containers, pod+"/cri-app.scope")
		for _, p := range []string{pod + "/cri-sandbox.scope", pod + "/cri-app.scope"} {
			if err := os.MkdirAll(filepath.Join(dir, p), 0o755); err != nil {
				b.Fatal(err)
			}
			for ; p != "."; p = path.Dir(p) {
				benchWrite(b, filepath.Join(dir, p, "io.stat"), "")
				benchWrite(b, filepath.Join(dir, p, "io.weight"), "default 100\n")
			}
		}
	}
	return containers
}

func benchWrite(b *testing.B, name, text string) {
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
}
