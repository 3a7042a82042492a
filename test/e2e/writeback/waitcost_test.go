package writeback

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio/wait"
	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// The costs of the programs that count waits.

// loadedBy returns the BPF programs that load loads. The kernel numbers programs in their order.
func loadedBy(t *testing.T, load func()) (loaded []*ebpf.Program) {
	t.Helper()
	last := ebpf.ProgramID(0)
	next := func() bool {
		id, err := ebpf.ProgramGetNextID(last)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		last = max(last, id)
		return err == nil
	}
	for next() { // those before
	}
	load()
	for next() {
		p, err := ebpf.NewProgramFromID(last)
		if errors.Is(err, os.ErrNotExist) { // a probe of what the kernel supports
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		loaded = append(loaded, p)
	}
	return loaded
}

// costOf returns the number of runs and the CPU time of those programs whose names begin with a prefix.
func costOf(t *testing.T, programs []*ebpf.Program, prefix string) (sum ebpf.ProgramStats) {
	t.Helper()
	for _, p := range programs {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(info.Name, prefix) {
			sum.RunCount, sum.Runtime = sum.RunCount+s.RunCount, sum.Runtime+s.Runtime
		}
	}
	return sum
}

// TestWaitOverhead measures the time that the programs take beside a busy disk.
//
//e2e:proof
func TestWaitOverhead(t *testing.T) {
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	a := lab.NewWriter(t, "busy")
	programs := loadedBy(t, func() { observer(t) })
	began := time.Now()
	a.Does("fio", "--name=b", "--filename="+lab.File(t, "ext4", "busy"), "--rw=randrw", "--direct=1", "--ioengine=libaio", "--iodepth=16", "--bs=4k", "--size=64M",
		"--time_based", "--runtime=10", "--output=/dev/null")
	took := time.Since(began)
	cost := costOf(t, programs, "")
	if cost.RunCount == 0 {
		t.Fatal("they never ran")
	}
	ops, err := cgroup.Dir(a.Name).Counter(lab.Node.Disks["vdb"], "rios")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d reads and as many writes in %v: %d runs of %v, %.2f %% of the time of a CPU", ops, took.Round(time.Millisecond), cost.RunCount,
		cost.Runtime/time.Duration(cost.RunCount), 100*cost.Runtime.Seconds()/took.Seconds())
}

// TestWaitThroughput compares the reads of a busy disk while the programs are attached with those without them. The first disk does 1,500
// operations a second. Of the second one the node's emulated CPUs are the bound.
//
//e2e:proof
func TestWaitThroughput(t *testing.T) {
	dir := t.TempDir()
	lab.Know(t, "vdj")
	lab.Administer(t, "mount", "/dev/vdj", dir)
	t.Cleanup(func() { lab.Administer(t, "umount", dir) })
	a := lab.NewWriter(t, "throughput")
	for _, d := range []struct {
		disk, file string
		least      float64
	}{{"vdj", filepath.Join(dir, "throughput"), 0.99}, {"vdb", lab.File(t, "ext4", "throughput"), 0}} {
		t.Cleanup(func() { os.Remove(d.file) })
		a.Writes(d.file, 64, "1M", "oflag=direct")
		reads := func() float64 {
			before, err := cgroup.Dir(a.Name).Counter(lab.Node.Disks[d.disk], "rios")
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			a.Does("fio", "--name=r", "--thread", "--filename="+d.file, "--rw=randread", "--direct=1", "--ioengine=libaio", "--iodepth=16", "--bs=4k", "--size=64M",
				"--time_based", "--runtime=10", "--output=/dev/null")
			took := time.Since(began).Seconds()
			after, err := cgroup.Dir(a.Name).Counter(lab.Node.Disks[d.disk], "rios")
			if err != nil {
				t.Fatal(err)
			}
			return float64(after-before) / took
		}
		var with, without []float64
		for range 5 {
			without = append(without, reads())
			o, err := wait.Attach()
			if err != nil {
				t.Fatal(err)
			}
			with = append(with, reads())
			if err := o.Close(); err != nil {
				t.Fatal(err)
			}
		}
		slices.Sort(with)
		slices.Sort(without)
		ratio := with[2] / without[2]
		t.Logf("%s: %.0f reads/s with the programs, %.0f without: %.3f", d.disk, with, without, ratio)
		if ratio < d.least {
			t.Errorf("%s: %.3f of the reads with the programs, want %.2f", d.disk, ratio, d.least)
		}
	}
}
