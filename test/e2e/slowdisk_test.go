package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// slowDisk does 1,500 operations and 8 MiB a second: there the disk is what neighbours
// compete for, and not the CPU of an emulated node.
const slowDisk = "vdi"

// slowBench is a disk with the logs of containers and the data of a victim.
type slowBench struct {
	*testing.T
	dir, number string
	victim      writer
	pods        int
}

func newSlowBench(t *testing.T) *slowBench {
	t.Helper()
	number := know(t, slowDisk)
	dir := t.TempDir()
	administer(t, "mount", "/dev/"+slowDisk, dir)
	t.Cleanup(func() { administer(t, "umount", dir) })
	return &slowBench{T: t, dir: dir, number: number, victim: newWriter(t, "victim")}
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

// counter is one of those of the slow disk in io.stat.
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
	out := b.victim.does(append([]string{
		"fio", "--thread", "--name=victim", "--filename=" + filepath.Join(b.dir, "victim"), "--size=32M", "--bs=4k", "--overwrite=1",
		"--time_based", "--runtime=5", "--eta=never", "--output-format=json",
	}, args...)...)
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
		b.Fatalf("%v in %q", err, out)
	}
	d := answer.Jobs[0].Read
	if d.IOPS == 0 {
		d = answer.Jobs[0].Write
	}
	return d.IOPS, d.Latency.Percentile["99.000000"] / float64(time.Millisecond)
}
