package weights

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestContainerLogs verifies that the output of a container, which the runtime writes, is not limited, and that
// its other writes are. With -proof the test measures the effect on a neighbour
// (docs/how-to/container-logs.md).
func TestContainerLogs(t *testing.T) {
	b := newSlowBench(t, slowDisk)
	lab.StartPlugin(t)
	// What the runtime has yet to write does not fill the memory of this small node first: a sync would last as long as the
	// container prints.
	lab.LittleDirty(t)
	b.charges()
	if !*lab.Proof || cri.IsCRIO() { // the figures of the page are containerd's
		return
	}
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

// logFigures are the results of one measurement: operations per second, and milliseconds.
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
		cells = append(cells, fmt.Sprintf("%.3g (%.3g–%.3g)", values[len(values)/2], values[0], values[len(values)-1]))
	}
	return "| " + strings.Join(cells, " | ") + " |"
}

// charges checks which cgroup pays for what a container prints, and that the
// container's own writes have their limit meanwhile.
func (b *slowBench) charges() {
	b.Helper()
	n := neighbour{args: printing}
	before := b.counter(b.payer(), "wbytes")
	k, end := b.run(n)
	defer end()
	const enough = 16 * lab.MiB
	lab.Within(b.T, 2*lab.Deadline, "the container prints 16 MiB", func() error {
		if size := b.logged(k); size < enough {
			return fmt.Errorf("the log of the container has %d bytes, want %d", size, enough)
		}
		return nil
	})
	lab.Administer(b.T, "sync", "-f", b.dir)
	own, paid := b.counter(cgroup.Dir(k.Cgroup), "wbytes"), b.counter(b.payer(), "wbytes")-before
	b.Logf("of the log, %d bytes are charged to the container, and %d to %s", own, paid, b.payer())
	if own > lab.MiB || paid < enough {
		b.Errorf("of the log, %d bytes are charged to the container and %d to the runtime, want none and at least %d", own, paid, enough)
	}
	if err := lab.CheckIOMax(k.Cgroup, lab.Disks{"vda": "wbps=2097152", slowDisk: "wbps=2097152"}); err != nil {
		b.Error(err)
	}
	ended := make(chan error, 1)
	writing, stop := context.WithTimeout(b.Context(), 4*lab.Deadline)
	defer stop()
	go func() {
		_, err := k.Exec(writing, 4*lab.Deadline, "/bin/iotool", "write", "--direct", "--path", "/data/files", "--span", "16Mi", "--size", "64Mi")
		ended <- err
	}()
	ctx, cancel := context.WithTimeout(b.Context(), 2*lab.Deadline)
	defer cancel()
	m, err := cgroup.Dir(k.Cgroup).Measure(ctx, b.number, "wbytes", lab.Settle, 2*time.Second)
	stop() // it writes for longer than the measurement takes
	written := <-ended
	if err != nil || m.Over(2*lab.MiB) > 1.1 {
		b.Errorf("while it prints, the container writes %v (%v, %v), limit 2 MiB/s", m, err, written)
	}
	b.Logf("beside that, the container writes %v", m)
}

// payer is containerd's cgroup, or the next one above it that counts I/O. Each conmon of CRI-O has a scope of its own, in
// system.slice.
func (b *slowBench) payer() cgroup.Dir {
	b.Helper()
	if cri.IsCRIO() {
		return "/system.slice"
	}
	dir := strings.TrimSpace(b.victim.Does("systemctl", "show", "--property", "ControlGroup", "--value", "engine"))
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

// logged is the size of the container's log.
func (b *slowBench) logged(k *cri.Container) int64 {
	b.Helper()
	info, err := os.Stat(k.Log)
	if err != nil {
		return 0 // not yet
	}
	return info.Size()
}

// beside measures the victim, and then another container that prints, beside a neighbour.
func (b *slowBench) beside(n neighbour) (f logFigures) {
	b.Helper()
	if n.runtime != "" {
		limit := func(value string) {
			lab.Administer(b.T, "systemctl", "set-property", "--runtime", "engine.service", "IOWriteBandwidthMax="+value)
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
	const steady = 80 * lab.MiB // more than the node may have in memory
	for end := time.Now().Add(8 * time.Second); n.args != nil && size() < steady && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	before, ops, began := size(), b.counter(b.payer(), "wios"), time.Now()
	f.commits, f.commitP99 = b.fio("--rw=write", "--sync=dsync")
	f.reads, f.readP99 = b.fio("--rw=randread", "--direct=1")
	took := time.Since(began).Seconds()
	f.log, f.ops = float64(size()-before)/lab.MiB/took, float64(b.counter(b.payer(), "wios")-ops)/took
	f.create, f.print = b.another()
	f.sync = b.sync()
	b.Logf("%s: %+v", n.name, f)
	return f
}

// patience is how long a sync of the disk is waited for.
const patience = 5 * time.Second

// sync returns the seconds that a sync of the disk takes, at most patience.
func (b *slowBench) sync() float64 {
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
func (b *slowBench) another() (create, prints float64) {
	b.Helper()
	pod := b.pod("another", "", nil)
	began := time.Now()
	k := pod.MustRun(cri.ContainerConfig{Name: "c", Args: []string{"print", "--block", "1Ki", "--size", "1Mi"}})
	create = time.Since(began).Seconds()
	ctx, cancel := context.WithTimeout(b.Context(), 4*lab.Deadline)
	defer cancel()
	out, err := k.Wait(ctx)
	if err != nil {
		b.Fatal(err)
	}
	var r lab.IOReport
	if err := json.Unmarshal([]byte(out[strings.LastIndex(out, "\n")+1:]), &r); err != nil {
		b.Fatal(err)
	}
	b.end(pod)
	return create, time.Duration(r.Nanos).Seconds()
}
