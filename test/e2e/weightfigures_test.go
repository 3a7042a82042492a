package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// The figures of docs/explanation/weights.md. They run with a proof only.

// truePolicy gives io.cost the true model of the shared disk.
const truePolicy = `bounds: {weight: {max: 10000}}
disks:
- match: {names: [` + sharedDisk + `]}
  model: {rbps: 60Mi, rseqiops: 1500, rrandiops: 1500, wbps: 60Mi, wseqiops: 1500, wrandiops: 1500}
`

// anyWeight lets pods have any weight, and leaves the model to what was calibrated.
const anyWeight = "bounds: {weight: {max: 10000}}\n"

// rounds is how often each figure is measured.
const figureRounds = 5

// noisy is a case of TestNoisyNeighbour.
type noisy struct {
	name                       string
	policy                     string // "" without the plugin
	victim, neighbour          annotations
	victimIsIdle, hasNeighbour bool
}

func noisyCases() []noisy {
	heavy, light := annotations{weight + "containers": "1000"}, annotations{weight + "containers": "10"}
	return []noisy{
		{name: "alone"},
		{name: "nothing", hasNeighbour: true},
		{name: "limit of 10 MiB/s and 200 operations/s", policy: anyWeight, neighbour: annotations{limits + "containers": "/data wbps=10Mi rbps=10Mi riops=200"}, hasNeighbour: true},
		{name: "weights 1000 : 10, true model", policy: truePolicy, victim: heavy, neighbour: light, hasNeighbour: true},
		{name: "weights 1000 : 10, calibrated", policy: anyWeight, victim: heavy, neighbour: light, hasNeighbour: true},
		{name: "the neighbour alone", hasNeighbour: true, victimIsIdle: true},
		{name: "the neighbour beside an idle victim, true model", policy: truePolicy, victim: heavy, neighbour: light, hasNeighbour: true, victimIsIdle: true},
		{name: "the neighbour beside an idle victim, calibrated", policy: anyWeight, victim: heavy, neighbour: light, hasNeighbour: true, victimIsIdle: true},
	}
}

// noisyFigures are what one measurement gives: operations per second, milliseconds, MiB per second.
type noisyFigures struct {
	commits, commitP99, reads, readP99, wrote, read float64
}

// TestNoisyNeighbour measures a victim that commits and then reads, beside a neighbour with four
// buffered writers and a reader at depth 32.
func TestNoisyNeighbour(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	(&stage{T: t}).littleDirty() // the memory of this small node is not to take all that is written
	saved := t.TempDir()
	calibrate(t, sharedDisk, "--force", "--write-dir", b.dir, "--save", "--calibration-dir", saved)
	cases := noisyCases()
	rows := make([][]noisyFigures, len(cases))
	for range figureRounds {
		for i := range cases {
			rows[i] = append(rows[i], b.noise(t, &cases[i], saved))
		}
	}
	t.Log("| | victim's commits /s | p99, ms | victim's reads /s | p99, ms | neighbour writes, MiB/s | reads, MiB/s |")
	for i := range cases {
		t.Logf("| %s | %s | %s | %s | %s | %s | %s |", cases[i].name,
			figure(rows[i], func(f noisyFigures) float64 { return f.commits }), figure(rows[i], func(f noisyFigures) float64 { return f.commitP99 }),
			figure(rows[i], func(f noisyFigures) float64 { return f.reads }), figure(rows[i], func(f noisyFigures) float64 { return f.readP99 }),
			figure(rows[i], func(f noisyFigures) float64 { return f.wrote }), figure(rows[i], func(f noisyFigures) float64 { return f.read }))
	}
	reads := func(i int) float64 { return median(rows[i], func(f noisyFigures) float64 { return f.reads }) }
	if reads(3) < 2*reads(1) {
		t.Errorf("with weights the victim reads %.0f/s, without %.0f/s", reads(3), reads(1))
	}
}

// startFor starts the plugin, and returns what ends it, and io.cost with it.
func (b *slowBench) startFor(t *testing.T, args ...string) (stop func()) {
	t.Helper()
	p := startPlugin(t, args...)
	return func() {
		p.signal(t, unix.SIGTERM)
		p.wait(t)
		b.disableCost()
	}
}

// noise measures one case.
func (b *slowBench) noise(t *testing.T, n *noisy, saved string) noisyFigures {
	t.Helper()
	if n.policy != "" {
		defer b.startFor(t, "--policy", policyFile(t, n.policy), "--calibration-dir", saved)()
	}
	b.pods++
	victim, neighbour := b.holder(fmt.Sprint("victim", b.pods), n.victim), b.holder(fmt.Sprint("noisy", b.pods), n.neighbour)
	defer b.end(victim.pod)
	defer b.end(neighbour.pod)
	if n.victim != nil {
		b.awaitCost(true)
	}
	if n.hasNeighbour {
		defer b.noiseIn(neighbour.Container)()
		time.Sleep(5 * time.Second) // until what it writes reaches the disk, and the weights follow
	}
	dir := cgroup.Dir(neighbour.Cgroup)
	wrote, read, began := b.counter(dir, "wbytes"), b.counter(dir, "rbytes"), time.Now()
	var out noisyFigures
	if n.victimIsIdle {
		time.Sleep(10 * time.Second)
	} else {
		in := writer{t: b.T, name: victim.Cgroup}
		commits, err := b.fioIn(in, "--rw=randwrite", "--fdatasync=1")
		reads, readErr := b.fioIn(in, "--rw=randread", "--direct=1", "--ioengine=libaio", "--iodepth=4")
		if err := errors.Join(err, readErr); err != nil {
			b.Fatal(err)
		}
		out = noisyFigures{commits: commits.rate, commitP99: commits.p99, reads: reads.rate, readP99: reads.p99}
	}
	per := mib * time.Since(began).Seconds()
	out.wrote, out.read = float64(b.counter(dir, "wbytes")-wrote)/per, float64(b.counter(dir, "rbytes")-read)/per
	return out
}

// held is a pod with a container that has the disk and does nothing itself.
type held struct {
	*cri.Container
	pod podOf
}

func (b *slowBench) holder(name string, a annotations) held {
	b.Helper()
	pod := runPodOf(b.T, name, cri.PodConfig{QoS: cri.Burstable, Annotations: a})
	return held{pod.run(cri.ContainerConfig{Name: "c", Args: []string{"sleep"}, Mounts: []cri.Mount{{Host: b.dir, Path: "/data"}}}), pod}
}

// noiseIn starts four writers and a reader in the cgroup of a container, and returns what ends them.
func (b *slowBench) noiseIn(k *cri.Container) (stop func()) {
	b.Helper()
	dir, err := os.Open(filepath.Join(cgroup.Root, k.Cgroup))
	if err != nil {
		b.Fatal(err)
	}
	defer dir.Close()
	ctx, cancel := context.WithCancel(context.Background())
	file := filepath.Join(b.dir, "noise")
	cmd := exec.CommandContext(ctx, "fio", "--thread", "--time_based", "--runtime=300", "--eta=never", "--directory="+b.dir, "--filename_format=noise.$jobnum", "--size=128M",
		"--name=write", "--rw=write", "--bs=1M", "--numjobs=4", "--fallocate=none",
		"--name=read", "--rw=randread", "--direct=1", "--bs=4k", "--ioengine=libaio", "--iodepth=32", "--filename="+filepath.Join(b.dir, "victim"), "--size=32M")
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return func() {
		cancel()
		_ = cmd.Wait() // killed
		for i := range 8 {
			os.Remove(fmt.Sprint(file, ".", i))
		}
		administer(b.T, "sync", "-f", b.dir)
	}
}

// median returns the median of a value.
func median[F any](of []F, value func(F) float64) float64 {
	values := make([]float64, len(of))
	for i := range of {
		values[i] = value(of[i])
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// figure formats a value: the median, the least and the greatest.
func figure[F any](of []F, value func(F) float64) string {
	least, greatest := math.Inf(1), math.Inf(-1)
	for i := range of {
		least, greatest = min(least, value(of[i])), max(greatest, value(of[i]))
	}
	return fmt.Sprintf("%.3g (%.3g to %.3g)", median(of, value), least, greatest)
}

// shareCase is a kind of I/O that two containers with weights 200 and 300 do.
type shareCase struct {
	name string
	args []string
}

// TestShareFigures measures how weights 200 and 300 divide a disk, in 60 windows of a second.
func TestShareFigures(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	(&stage{T: t}).littleDirty()
	startPlugin(t, "--policy", policyFile(t, truePolicy))
	pair := []held{b.holder("light", annotations{weight + "containers": "200"}), b.holder("heavy", annotations{weight + "containers": "300"})}
	b.awaitCost(true)
	b.fio("--rw=randread", "--direct=1", "--runtime=1") // makes the file
	for _, c := range []shareCase{
		{"direct reads", []string{"--rw=randread", "--direct=1", "--ioengine=libaio", "--iodepth=16"}},
		{"direct writes", []string{"--rw=randwrite", "--direct=1", "--ioengine=libaio", "--iodepth=16"}},
		{"synced buffered writes", []string{"--rw=write", "--bs=256k", "--fsync=16", "--numjobs=4"}},
	} {
		var shares, isolations []float64
		for range figureRounds {
			share, isolation := b.share(t, pair, c)
			shares, isolations = append(shares, 100*share), append(isolations, 100*isolation)
		}
		same := func(f float64) float64 { return f }
		t.Logf("| %s | %s | %s |", c.name, figure(shares, same), figure(isolations, same))
		if got := median(shares, same); math.Abs(got-60) > 10 {
			t.Errorf("%s: weight 300 beside 200 gets %.1f %%", c.name, got)
		}
	}
}

// share returns the part of the disk that the second of two containers gets, and the first
// percentile of what it gets in a second of what it is due, at most 1.
func (b *slowBench) share(t *testing.T, pair []held, c shareCase) (share, isolation float64) {
	t.Helper()
	var group errgroup.Group
	for i, k := range pair {
		args := append(slices.Clone(c.args), "--runtime=66", fmt.Sprint("--filename=", filepath.Join(b.dir, fmt.Sprint("share", i))), "--size=128M")
		group.Go(func() error {
			_, err := b.fioIn(writer{t: b.T, name: k.Cgroup}, args...)
			return err
		})
	}
	time.Sleep(5 * time.Second)
	count := func(k held) float64 {
		dir := cgroup.Dir(k.Cgroup)
		return float64(b.counter(dir, "rbytes") + b.counter(dir, "wbytes"))
	}
	var windows []float64
	first := []float64{count(pair[0]), count(pair[1])}
	before := slices.Clone(first)
	for range 60 {
		time.Sleep(time.Second)
		now := []float64{count(pair[0]), count(pair[1])}
		light, heavy := now[0]-before[0], now[1]-before[1]
		windows = append(windows, min(1, heavy/(light+heavy)/0.6))
		before = now
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(windows)
	light, heavy := before[0]-first[0], before[1]-first[1]
	return heavy / (light + heavy), windows[0]
}
