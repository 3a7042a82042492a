package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// TestContainerLogs: the runtime writes what a container prints, so the container's
// limits do not hold for it, and hold for all else. With -proof it measures what that
// does to a neighbour (docs/how-to/container-logs.md).
func TestContainerLogs(t *testing.T) {
	b := newLogBench(t)
	startPlugin(t)
	b.charges()
	if !*proof {
		return
	}
	// What the runtime has yet to write does not fill the memory of this small node first.
	s := &stage{T: t}
	s.littleDirty()
	rows := make([][]logFigures, len(neighbours))
	for range 3 {
		for i, n := range neighbours {
			rows[i] = append(rows[i], b.beside(n))
		}
	}
	t.Log("| neighbour | its log, MiB/s | written in operations /s | victim's commits /s | p99, ms | victim's reads /s | p99, ms | another container: created and started, s | prints 1 MiB in, s | a sync of the disk, s |")
	for i, n := range neighbours {
		t.Log(n.row(rows[i]))
	}
}

// logBench is a disk with the logs of containers and the data of a victim.
type logBench struct {
	*testing.T
	dir, number string
	victim      writer
	pods        int
}

func newLogBench(t *testing.T) *logBench {
	t.Helper()
	number := know(t, slowDisk)
	dir := t.TempDir()
	administer(t, "mount", "/dev/"+slowDisk, dir)
	t.Cleanup(func() { administer(t, "umount", dir) })
	return &logBench{T: t, dir: dir, number: number, victim: newWriter(t, "victim")}
}

// neighbour is a container that may write 2 MiB/s to each disk, and what it does.
type neighbour struct {
	name string
	args []string // none: there is no neighbour
	logs string   // directory of its log; "" for the slow disk
	cpu  int64    // microseconds in each 100 ms; 0 for no limit
	// runtime is what containerd may write to the slow disk, as systemd takes it; "" for no limit.
	runtime string
}

var (
	printing   = []string{"print", "--block", "8Ki"}
	neighbours = []neighbour{
		{name: "none"},
		{name: "writes files", args: []string{"write", "--path", "/data/files", "--span", "1Gi"}},
		{name: "prints", args: printing},
		{name: "prints, its log on another disk", args: printing, logs: "/var/log/pods"},
		{name: "prints, limited to 5 % of a CPU", args: printing, cpu: 5_000},
		{name: "prints, containerd limited to 2 MB/s", args: printing, runtime: "2M"},
	}
)

// logFigures are what one measurement gives: operations per second, and milliseconds.
type logFigures struct {
	log, ops, commits, commitP99, reads, readP99, create, print, sync float64
}

// row has the median of each figure, with the smallest and the largest.
func (n neighbour) row(all []logFigures) string {
	cells := []string{n.name}
	for _, of := range []func(logFigures) float64{
		func(f logFigures) float64 { return f.log },
		func(f logFigures) float64 { return f.ops },
		func(f logFigures) float64 { return f.commits },
		func(f logFigures) float64 { return f.commitP99 },
		func(f logFigures) float64 { return f.reads },
		func(f logFigures) float64 { return f.readP99 },
		func(f logFigures) float64 { return f.create },
		func(f logFigures) float64 { return f.print },
		func(f logFigures) float64 { return f.sync },
	} {
		var values []float64
		for _, f := range all {
			values = append(values, of(f))
		}
		slices.Sort(values)
		cells = append(cells, fmt.Sprintf("%.3g (%.3g to %.3g)", values[len(values)/2], values[0], values[len(values)-1]))
	}
	return "| " + strings.Join(cells, " | ") + " |"
}

// run starts a neighbour, and returns what ends it.
func (b *logBench) run(n neighbour) (*cri.Container, func()) {
	b.Helper()
	pod := b.pod("neighbour", n.logs, annotations{limits + "containers": "* wbps=2Mi"})
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
func (b *logBench) pod(name, logs string, a annotations) podOf {
	b.Helper()
	if logs == "" {
		logs = filepath.Join(b.dir, "logs")
	}
	b.pods++
	return runPodOf(b.T, name+strconv.Itoa(b.pods), cri.PodConfig{Annotations: a, Logs: logs})
}

// end removes a pod, with its log.
func (b *logBench) end(pod podOf) {
	b.Helper()
	if err := pod.Remove(b.Context()); err != nil {
		b.Error(err)
	}
}

// charges checks which cgroup pays for what a container prints, and that the
// container's own writes have their limit meanwhile.
func (b *logBench) charges() {
	b.Helper()
	n := neighbour{args: printing}
	before := b.counter(b.payer(), "wbytes")
	k, end := b.run(n)
	defer end()
	const enough = 16 * mib
	within(b.T, 2*deadline, "the container prints 16 MiB", func() error {
		if size := b.logged(k); size < enough {
			return fmt.Errorf("its log has %d bytes", size)
		}
		return nil
	})
	administer(b.T, "sync", "-f", b.dir)
	own, paid := b.counter(cgroup.Dir(k.Cgroup), "wbytes"), b.counter(b.payer(), "wbytes")-before
	b.Logf("of the log, %d bytes are charged to the container, and %d to %s", own, paid, b.payer())
	if own > mib || paid < enough {
		b.Errorf("%d bytes are charged to the container, and %d to the runtime, want none and %d", own, paid, enough)
	}
	if err := checkIOMax(k.Cgroup, disks{"vda": "wbps=2097152", slowDisk: "wbps=2097152"}); err != nil {
		b.Error(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := k.Exec(b.Context(), 4*deadline, "/bin/iotool", "write", "--direct", "--path", "/data/files", "--span", "16Mi", "--size", "12Mi")
		ended <- err
	}()
	ctx, cancel := context.WithTimeout(b.Context(), 2*deadline)
	defer cancel()
	m, err := cgroup.Dir(k.Cgroup).Measure(ctx, b.number, "wbytes", settle, 2*time.Second)
	if err != nil || m.Over(2*mib) > 1.1 {
		b.Errorf("beside that, the container writes %v (%v), limit 2 MiB/s", m, err)
	}
	b.Logf("beside that, the container writes %v", m)
	if err := <-ended; err != nil {
		b.Error(err)
	}
}

// payer is containerd's cgroup, or the next one above it that counts I/O.
func (b *logBench) payer() cgroup.Dir {
	b.Helper()
	dir := strings.TrimSpace(b.victim.does("systemctl", "show", "--property", "ControlGroup", "--value", "containerd"))
	for {
		_, err := os.Stat(filepath.Join(cgroup.Root, dir, "io.stat"))
		if err == nil {
			return cgroup.Dir(dir)
		}
		if dir == "/" || !errors.Is(err, os.ErrNotExist) {
			b.Fatalf("cgroup of containerd: %v", err)
		}
		dir = filepath.Dir(dir)
	}
}

// counter is one of those of the slow disk in io.stat.
func (b *logBench) counter(dir cgroup.Dir, name string) int64 {
	b.Helper()
	n, err := dir.Counter(b.number, name)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// logged is the size of the container's log.
func (b *logBench) logged(k *cri.Container) int64 {
	b.Helper()
	info, err := os.Stat(k.Log)
	if err != nil {
		return 0 // not yet
	}
	return info.Size()
}

// beside measures the victim, and then another container that prints, beside a neighbour.
func (b *logBench) beside(n neighbour) (f logFigures) {
	b.Helper()
	if n.runtime != "" {
		limit := func(value string) {
			administer(b.T, "systemctl", "set-property", "--runtime", "containerd.service", "IOWriteBandwidthMax="+value)
		}
		limit("/dev/" + slowDisk + " " + n.runtime)
		defer limit("")
	}
	size := func() int64 { return 0 }
	if n.args != nil {
		k, end := b.run(n)
		defer end()
		size = func() int64 { return b.logged(k) }
	}
	const steady = 80 * mib // more than the node may have in memory
	for end := time.Now().Add(8 * time.Second); n.args != nil && size() < steady && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	before, ops, began := size(), b.counter(b.payer(), "wios"), time.Now()
	f.commits, f.commitP99 = b.fio("--rw=write", "--sync=dsync")
	f.reads, f.readP99 = b.fio("--rw=randread", "--direct=1")
	took := time.Since(began).Seconds()
	f.log, f.ops = float64(size()-before)/mib/took, float64(b.counter(b.payer(), "wios")-ops)/took
	f.create, f.print = b.another()
	f.sync = b.sync()
	b.Logf("%s: %+v", n.name, f)
	return f
}

// fio returns the victim's operations of 4 KiB per second, and their 99th percentile in
// milliseconds.
func (b *logBench) fio(args ...string) (rate, p99 float64) {
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

// patience is how long a sync of the disk is waited for.
const patience = 5 * time.Second

// sync returns the seconds that a sync of the disk takes, at most patience.
func (b *logBench) sync() float64 {
	b.Helper()
	began, done := time.Now(), make(chan error, 1)
	go func() { done <- exec.Command("sync", "-f", b.dir).Run() }()
	select {
	case err := <-done:
		if err != nil {
			b.Error(err)
		}
	case <-time.After(patience): // it ends with the neighbour
	}
	return time.Since(began).Seconds()
}

// another runs a container without limits that prints 1 MiB, and returns the seconds that
// its start and its printing take.
func (b *logBench) another() (create, prints float64) {
	b.Helper()
	pod := b.pod("another", "", nil)
	began := time.Now()
	k := pod.run(cri.ContainerConfig{Name: "c", Args: []string{"print", "--block", "1Ki", "--size", "1Mi"}})
	create = time.Since(began).Seconds()
	ctx, cancel := context.WithTimeout(b.Context(), 4*deadline)
	defer cancel()
	out, err := k.Wait(ctx)
	if err != nil {
		b.Fatal(err)
	}
	var r ioReport
	if err := json.Unmarshal([]byte(out[strings.LastIndex(out, "\n")+1:]), &r); err != nil {
		b.Fatal(err)
	}
	b.end(pod)
	return create, time.Duration(r.Nanos).Seconds()
}
