package weights

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
)

// slowDisk does 1,500 operations and 8 MiB a second: there the disk is what neighbours
// compete for, and not the CPU of an emulated node.
const slowDisk = "vdi"

// sharedDisk does 1,500 operations and 60 MiB a second.
const sharedDisk = noise.SharedDisk

// slowBench is a throttled disk with the logs of containers and the data of a victim.
type slowBench struct {
	*testing.T
	dir, number string
	victim      lab.Writer
	pods        int
}

func newSlowBench(t *testing.T, disk string) *slowBench {
	t.Helper()
	b := mountSlow(t, disk)
	t.Cleanup(b.disableCost) // after the plugin has ended
	return b
}

// mountSlow returns a bench for a kernel without io.cost.
func mountSlow(t *testing.T, disk string) *slowBench {
	t.Helper()
	number := lab.Know(t, disk)
	dir := t.TempDir()
	lab.Administer(t, "mount", "/dev/"+disk, dir)
	t.Cleanup(func() { lab.Administer(t, "umount", dir) })
	return &slowBench{T: t, dir: dir, number: number, victim: lab.NewWriter(t, "victim")}
}

// neighbour describes a container beside the victim. It may write 2 MiB/s to each disk.
type neighbour struct {
	name string
	args []string // none: there is no neighbour
	logs string   // directory of its log; "" for the slow disk
	cpu  int64    // microseconds in each 100 ms; 0 for no limit
	// runtime is the rate at which containerd may write to the slow disk, in systemd's form; "" for no limit.
	runtime string
	// unlimited is true if the neighbour has no limit.
	unlimited bool
}

// run starts a neighbour, and returns what ends it.
func (b *slowBench) run(n neighbour) (*cri.Container, func()) {
	b.Helper()
	a := lab.Annotations{lab.Limits + "containers": "* wbps=2Mi"}
	if n.unlimited {
		a = nil
	}
	pod := b.pod("neighbour", n.logs, a)
	k := pod.MustRun(cri.ContainerConfig{
		Name: "c", Args: n.args, Memory: lab.MemoryLimit, Mounts: []cri.Mount{{Host: b.dir, Path: "/data"}},
	})
	if n.cpu > 0 {
		if err := k.Update(b.Context(), cri.Resources{CPUQuota: n.cpu}); err != nil {
			b.Fatal(err)
		}
	}
	return k, func() {
		b.end(pod)
		os.Remove(filepath.Join(b.dir, "files"))
		lab.Administer(b.T, "sync", "-f", b.dir)
	}
}

// pod runs a pod with its log in a directory, which is that of the slow disk by default.
func (b *slowBench) pod(name, logs string, a lab.Annotations) lab.PodOf {
	b.Helper()
	if logs == "" {
		logs = filepath.Join(b.dir, "logs")
	}
	b.pods++
	return lab.RunPodOf(b.T, name+strconv.Itoa(b.pods), cri.PodConfig{Annotations: a, Logs: logs})
}

// end removes a pod, with its log.
func (b *slowBench) end(pod lab.PodOf) {
	b.Helper()
	if err := pod.Remove(b.Context()); err != nil {
		b.Error(err)
	}
}

// counter is one of those of the disk in io.stat.
func (b *slowBench) counter(dir cgroup.Dir, name string) int64 {
	b.Helper()
	n, err := dir.Counter(b.number, name)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// fio returns the victim's operations of 4 KiB per second, and their 99th percentile in
// milliseconds.
func (b *slowBench) fio(args ...string) (rate, p99 float64) {
	b.Helper()
	got, err := b.disk().Victim(b.Context(), b.victim.Name, args...)
	if err != nil {
		b.Fatal(err)
	}
	return got.Rate, got.P99
}

// disk returns the disk as package noise has it.
func (b *slowBench) disk() noise.Disk { return noise.Disk{Dir: b.dir, Number: b.number} }

// together runs fio in several cgroups at the same time, and compares their operations per second with the
// expected ones. The operations are counted in a common window, in which all processes run and the weights are
// in force. Under emulation processes start one after another, so windows of their own would include times
// without the others. A busy machine can stop the node for a part of a window, so up to eight windows are tried: shares that are wrong
// are so in each of them.
func (b *slowBench) together(cgroups []string, judge func(rates []float64) error, args ...string) error {
	b.Helper()
	const settle, window = 10 * time.Second, 10 * time.Second
	before := b.operations(cgroups)
	var ended []<-chan error
	for _, name := range cgroups {
		done, stop := b.startFio(name, args...)
		defer stop()
		ended = append(ended, done)
	}
	lab.Eventually(b.T, "each of them does I/O", func() error {
		for i, n := range b.operations(cgroups) {
			if n-before[i] < 10 {
				return fmt.Errorf("%s did %d operations, want 10", cgroups[i], n-before[i])
			}
		}
		return nil
	})
	time.Sleep(settle)
	var err error
	for range 8 {
		first, began := b.operations(cgroups), time.Now()
		time.Sleep(window)
		last, took := b.operations(cgroups), time.Since(began).Seconds()
		rates := make([]float64, len(cgroups))
		for i := range cgroups {
			rates[i] = float64(last[i]-first[i]) / took
		}
		for i, done := range ended {
			select {
			case err := <-done:
				b.Fatalf("%s: fio has ended: %v", cgroups[i], err)
			default:
			}
		}
		err = judge(rates)
		b.Logf("%.0f operations/s: %v", rates, cmp.Or(err, errors.New("as expected")))
		if err == nil {
			return nil
		}
		b.logWeights()
	}
	return err
}

// operations returns how many of them each cgroup has done on the disk.
func (b *slowBench) operations(cgroups []string) (out []int64) {
	b.Helper()
	for _, name := range cgroups {
		out = append(out, b.counter(cgroup.Dir(name), "rios")+b.counter(cgroup.Dir(name), "wios"))
	}
	return out
}

// logWeights logs the weights and the use of the disk of all cgroups that have used it.
func (b *slowBench) logWeights() {
	b.Helper()
	err := filepath.WalkDir(cgroup.Root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // removed meanwhile
		}
		stat, _ := os.ReadFile(filepath.Join(p, "io.stat"))
		for line := range strings.Lines(string(stat)) {
			if strings.HasPrefix(line, b.number+" ") {
				value, _ := os.ReadFile(filepath.Join(p, "io.weight"))
				b.Logf("%s: io.weight %q, io.stat %s", strings.TrimPrefix(p, cgroup.Root), value, line)
			}
		}
		return nil
	})
	if err != nil {
		b.Log(err)
	}
}

// startFio starts fio on the file of the victim in a cgroup. done has its error when it ends; stop
// kills it and waits.
func (b *slowBench) startFio(name string, args ...string) (done <-chan error, stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "fio", b.disk().VictimArgs(append(args, "--runtime=300")...)...)
	if err := noise.StartIn(name, cmd); err != nil {
		cancel()
		b.Fatal(err)
	}
	ended, waited := make(chan error, 1), make(chan struct{})
	go func() {
		ended <- cmd.Wait()
		close(waited)
	}()
	return ended, func() {
		cancel()
		<-waited
	}
}
