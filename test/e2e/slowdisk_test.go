package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// slowDisk does 1,500 operations and 8 MiB a second: there the disk is what neighbours
// compete for, and not the CPU of an emulated node.
const slowDisk = "vdi"

// sharedDisk does 1,500 operations and 60 MiB a second.
const sharedDisk = "vdj"

// slowBench is a throttled disk with the logs of containers and the data of a victim.
type slowBench struct {
	*testing.T
	dir, number string
	victim      writer
	pods        int
}

func newSlowBench(t *testing.T, disk string) *slowBench {
	t.Helper()
	number := know(t, disk)
	dir := t.TempDir()
	administer(t, "mount", "/dev/"+disk, dir)
	t.Cleanup(func() { administer(t, "umount", dir) })
	b := &slowBench{T: t, dir: dir, number: number, victim: newWriter(t, "victim")}
	t.Cleanup(b.disableCost) // after the plugin has ended
	return b
}

// neighbour is a container beside the victim, and what it does. It may write 2 MiB/s to each disk.
type neighbour struct {
	name string
	args []string // none: there is no neighbour
	logs string   // directory of its log; "" for the slow disk
	cpu  int64    // microseconds in each 100 ms; 0 for no limit
	// runtime is what containerd may write to the slow disk, as systemd takes it; "" for no limit.
	runtime string
	// unlimited: it may write as much as it can.
	unlimited bool
}

// run starts a neighbour, and returns what ends it.
func (b *slowBench) run(n neighbour) (*cri.Container, func()) {
	b.Helper()
	a := annotations{limits + "containers": "* wbps=2Mi"}
	if n.unlimited {
		a = nil
	}
	pod := b.pod("neighbour", n.logs, a)
	k := pod.run(cri.ContainerConfig{
		Name: "c", Args: n.args, Memory: memoryLimit, Mounts: []cri.Mount{{Host: b.dir, Path: "/data"}},
	})
	if n.cpu > 0 {
		if err := k.Update(b.Context(), cri.Resources{CPUQuota: n.cpu}); err != nil {
			b.Fatal(err)
		}
	}
	return k, func() {
		b.end(pod)
		os.Remove(filepath.Join(b.dir, "files"))
		administer(b.T, "sync", "-f", b.dir)
	}
}

// pod runs a pod with its log in a directory, which is that of the slow disk by default.
func (b *slowBench) pod(name, logs string, a annotations) podOf {
	b.Helper()
	if logs == "" {
		logs = filepath.Join(b.dir, "logs")
	}
	b.pods++
	return runPodOf(b.T, name+strconv.Itoa(b.pods), cri.PodConfig{Annotations: a, Logs: logs})
}

// end removes a pod, with its log.
func (b *slowBench) end(pod podOf) {
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
	got, err := b.fioIn(b.victim, args...)
	if err != nil {
		b.Fatal(err)
	}
	return got.rate, got.p99
}

// fioResult is what fio did: operations per second, and their 99th percentile in milliseconds.
type fioResult struct{ rate, p99 float64 }

// fioArgs are operations of 4 KiB on the file of the victim, for 5 s, reported as JSON.
func (b *slowBench) fioArgs() []string {
	return []string{
		"--thread", "--name=victim", "--filename=" + filepath.Join(b.dir, "victim"), "--size=32M", "--bs=4k", "--overwrite=1",
		"--time_based", "--runtime=5", "--eta=never", "--output-format=json", "--group_reporting",
	}
}

// fioIn runs fio in a cgroup, by default for 5 s with operations of 4 KiB.
func (b *slowBench) fioIn(w writer, args ...string) (fioResult, error) {
	out, err := w.tries(append(append([]string{"fio"}, b.fioArgs()...), args...)...)
	if err != nil {
		return fioResult{}, err
	}
	type direction struct {
		IOPS    float64
		Latency struct {
			Percentile map[string]float64
		} `json:"clat_ns"`
	}
	var answer struct {
		Jobs []struct{ Read, Write direction }
	}
	if err := json.Unmarshal([]byte(out[max(0, strings.Index(out, "{")):]), &answer); err != nil || len(answer.Jobs) != 1 {
		return fioResult{}, fmt.Errorf("%w in %q", err, out)
	}
	d := answer.Jobs[0].Read
	if d.IOPS == 0 {
		d = answer.Jobs[0].Write
	}
	return fioResult{d.IOPS, d.Latency.Percentile["99.000000"] / float64(time.Millisecond)}, nil
}

// together runs fio in several cgroups at the same time, and returns the operations of each per
// second. They are counted in one window, in which all of them run and the weights have followed:
// processes that start one after another under emulation would each have a window of its own, in
// which another one has not begun or has ended.
func (b *slowBench) together(cgroups []string, args ...string) []float64 {
	b.Helper()
	const settle, window = 10 * time.Second, 10 * time.Second
	count := func() (out []int64) {
		for _, name := range cgroups {
			out = append(out, b.counter(cgroup.Dir(name), "rios")+b.counter(cgroup.Dir(name), "wios"))
		}
		return out
	}
	before := count()
	var ended []<-chan error
	for _, name := range cgroups {
		done, stop := b.startFio(name, args...)
		defer stop()
		ended = append(ended, done)
	}
	eventually(b.T, "each of them does I/O", func() error {
		for i, n := range count() {
			if n-before[i] < 10 {
				return fmt.Errorf("%s: %d operations", cgroups[i], n-before[i])
			}
		}
		return nil
	})
	time.Sleep(settle)
	first, began := count(), time.Now()
	time.Sleep(window)
	last, took := count(), time.Since(began).Seconds()
	for i, done := range ended {
		select {
		case err := <-done:
			b.Fatalf("%s: fio has ended: %v", cgroups[i], err)
		default:
		}
	}
	var out []float64
	for i := range cgroups {
		out = append(out, float64(last[i]-first[i])/took)
	}
	return out
}

// startFio starts fio on the file of the victim in a cgroup. done has its error when it ends; stop
// kills it and waits.
func (b *slowBench) startFio(name string, args ...string) (done <-chan error, stop func()) {
	b.Helper()
	dir, err := os.Open(filepath.Join(cgroup.Root, name))
	if err != nil {
		b.Fatal(err)
	}
	defer dir.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "fio", append(b.fioArgs(), append(args, "--runtime=300")...)...)
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
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
