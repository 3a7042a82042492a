package weights

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
	"github.com/nri-blkio/nri-blkio/test/generated"
)

// The cgroups of TestLatencyTargets are those that the kubelet and systemd make. io.latency compares siblings only.
const (
	latencySystem  = "e2e-system.slice"          // a daemon, beside all pods
	latencyPods    = "e2e-pods.slice"            // all pods
	latencyClass   = latencyPods + "/burstable"  // a QoS class with the eight writers
	latencyOutside = latencyPods + "/guaranteed" // a pod beside this class
	latencySibling = latencyClass + "/victim"    // a pod of the same class
	latencyWriter  = latencyClass + "/writer"    // and the number of a writer
	latencyParam   = "/sys/module/blk_cgroup/parameters/blkcg_debug_stats"
	latencyWriters = 8
)

const (
	// latencyRounds is how often each figure of TestLatencyTargets is measured.
	latencyRounds = 3
	// latencyRamp is the time in which the kernel halves the depth of a queue down to 1: at most once in half a second.
	latencyRamp   = 8 * time.Second
	latencyWindow = 4 * time.Second
	// latencyAfter is how long the writers are measured after the victim has ended.
	latencyAfter = 10 * time.Second
)

// latencyCase is a target of io.latency, and the cgroups of victims. The targets are on these cgroups.
type latencyCase struct {
	name     string
	buffered bool          // the writers are buffered
	target   time.Duration // 0 for none
	victims  []string
	args     []string // what the victims do, by default [noise.Reads]
	after    bool     // the writers are measured after the victim has ended, too
}

func latencyCases() (out []latencyCase) {
	const ms = time.Millisecond
	out = append(out, latencyCase{name: "direct writers, no target", victims: []string{latencySystem}})
	for _, target := range []time.Duration{5 * ms, 20 * ms, 75 * ms} {
		out = append(out, latencyCase{name: "direct writers, system.slice", target: target, victims: []string{latencySystem}, after: target != 20*ms})
	}
	for _, target := range []time.Duration{5 * ms, 20 * ms, 75 * ms} {
		out = append(out, latencyCase{name: "direct writers, a pod of their QoS class", target: target, victims: []string{latencySibling}})
	}
	return append(
		out,
		latencyCase{name: "direct writers, a pod beside their QoS class", target: 20 * ms, victims: []string{latencyOutside}},
		latencyCase{name: "direct writers, system.slice and a pod of their QoS class", target: 20 * ms, victims: []string{latencySystem, latencySibling}},
		latencyCase{name: "direct writers, no target, system.slice writes 256 KiB", args: latencyWrites(), victims: []string{latencySystem}},
		latencyCase{name: "direct writers, system.slice, which writes 256 KiB", args: latencyWrites(), target: 20 * ms, victims: []string{latencySystem}},
		latencyCase{name: "buffered writers, no target", buffered: true, victims: []string{latencySystem}},
		latencyCase{name: "buffered writers, system.slice", buffered: true, target: 20 * ms, victims: []string{latencySystem}},
	)
}

// latencyWrites are the options for a victim that waits for its own queue, as a runtime that unpacks an image.
func latencyWrites() []string {
	return []string{"--rw=write", "--bs=256k", "--direct=1", "--ioengine=libaio", "--iodepth=32"}
}

// String names the case in the table.
func (c *latencyCase) String() string {
	if c.target == 0 {
		return c.name
	}
	return fmt.Sprintf("%s: %d ms", c.name, c.target.Milliseconds())
}

// TestLatencyTargets measures what targets of io.latency on a victim's cgroup, at several levels of the tree, do for the victim
// beside eight writers. Without a plugin, in cgroups as those of pods. Only the kernel that test/node compiles has io.latency.
//
//e2e:proof
func TestLatencyTargets(t *testing.T) {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	b := mountSlow(t, sharedDisk)
	latencyCgroups(t)
	_, err = os.Stat(filepath.Join(cgroup.Root, latencySystem, "io.latency"))
	if has, want := err == nil, strings.HasSuffix(strings.TrimSpace(string(release)), "-iolatency"); has != want {
		t.Fatalf("kernel %s has io.latency: %v (%v), want %v", release, has, err, want)
	}
	if err != nil { // there is nothing to measure
		return
	}
	lab.WriteFile(t, latencyParam, "Y") // io.stat has the depth of queues
	t.Cleanup(func() { lab.WriteFile(t, latencyParam, "N") })
	lab.LittleDirty(t)
	b.logQueue()
	b.fio("--rw=randread", "--direct=1", "--runtime=1") // makes the victim's file
	cases := latencyCases()
	rows := make([]generated.Row, len(cases))
	for range latencyRounds {
		for _, buffered := range []bool{false, true} {
			b.latencyRound(t, cases, rows, buffered)
		}
	}
	for i := range cases {
		publish(t, &rows[i], cases[i].String())
	}
}

// latencyRound measures the cases with one kind of writers once.
func (b *slowBench) latencyRound(t *testing.T, cases []latencyCase, rows []generated.Row, buffered bool) {
	t.Helper()
	defer b.latencyWriters(buffered)()
	for i := range cases {
		if cases[i].buffered == buffered {
			rows[i].Add(b.latency(t, &cases[i]))
			t.Log(cases[i].String(), rows[i].Rounds)
		}
	}
}

// latencyCgroups makes the cgroups, which are removed with the test.
func latencyCgroups(t *testing.T) {
	t.Helper()
	mkdir := func(name string, hasChildren bool) {
		dir := filepath.Join(cgroup.Root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
		if hasChildren {
			lab.WriteFile(t, filepath.Join(dir, "cgroup.subtree_control"), "+io +memory")
		}
	}
	mkdir(latencySystem, false)
	mkdir(latencyPods, true)
	mkdir(latencyClass, true)
	mkdir(latencyOutside, false)
	mkdir(latencySibling, false)
	for i := range latencyWriters {
		name := fmt.Sprint(latencyWriter, i)
		mkdir(name, false)
		lab.WriteFile(t, filepath.Join(cgroup.Root, name, "memory.max"), fmt.Sprint(lab.MemoryLimit))
	}
}

// logQueue logs what of the disk's queue matters to io.latency: it counts the mean on rotational disks, and a percentile on others.
func (b *slowBench) logQueue() {
	b.Helper()
	for _, name := range []string{"rotational", "nr_requests", "scheduler", "wbt_lat_usec"} {
		data, err := os.ReadFile("/sys/block/" + sharedDisk + "/queue/" + name)
		if err != nil {
			b.Fatal(err)
		}
		b.Logf("%s: %s", name, strings.TrimSpace(string(data)))
	}
}

// latencyWriters starts the eight writers, and returns what ends them.
func (b *slowBench) latencyWriters(buffered bool) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	kind := []string{"--bs=1M", "--direct=1", "--ioengine=libaio", "--iodepth=8"}
	if buffered {
		kind = []string{"--bs=256k"}
	}
	var running []*exec.Cmd
	for i := range latencyWriters {
		args := []string{
			"--thread", "--name=w", "--rw=write", "--size=96M", "--time_based", "--runtime=1200", "--eta=never", fmt.Sprintf("--filename=%s/w%d", b.dir, i),
		}
		cmd := exec.CommandContext(ctx, "fio", append(args, kind...)...)
		if err := noise.StartIn(fmt.Sprint(latencyWriter, i), cmd); err != nil {
			cancel()
			b.Fatal(err)
		}
		running = append(running, cmd)
	}
	time.Sleep(noise.Settle)
	return func() {
		cancel()
		for i, cmd := range running {
			_ = cmd.Wait() // killed
			os.Remove(fmt.Sprintf("%s/w%d", b.dir, i))
		}
		lab.Administer(b.T, "sync", "-f", b.dir)
	}
}

// latency measures one case. The second victim's figures have names of their own.
func (b *slowBench) latency(t *testing.T, c *latencyCase) map[string]float64 {
	t.Helper()
	for _, victim := range c.victims {
		defer b.setTarget(victim, 0)
		b.setTarget(victim, c.target)
	}
	ended := make([]chan error, len(c.victims))
	results := make([]noise.Result, len(c.victims))
	before := b.operations(c.victims)
	args := c.args
	if args == nil {
		args = noise.Reads()
	}
	args = append(args, fmt.Sprintf("--ramp_time=%d", int(latencyRamp.Seconds())), fmt.Sprintf("--runtime=%d", int(latencyWindow.Seconds())))
	for i, victim := range c.victims {
		ended[i] = make(chan error, 1)
		go func() {
			var err error
			results[i], err = b.disk().Victim(context.WithoutCancel(t.Context()), victim, args...)
			ended[i] <- err
		}()
	}
	lab.Eventually(t, "the victims do I/O", func() error {
		for i, n := range b.operations(c.victims) {
			if n == before[i] {
				return fmt.Errorf("%s has done no I/O", c.victims[i])
			}
		}
		return nil
	})
	time.Sleep(latencyRamp)
	out := map[string]float64{"wrote": b.classRate(latencyWindow)}
	peers := []string{latencyPods, latencyClass, latencyWriter + "0"}
	depths := b.queueDepths(peers)
	for i := range c.victims {
		if err := <-ended[i]; err != nil {
			t.Fatal(err)
		}
		kind := []string{"", "second "}[i]
		out[kind+"reads"], out[kind+"p99"] = results[i].Rate, results[i].P99
	}
	t.Log("depths", depths)
	if c.after {
		out["after"] = b.classRate(latencyAfter)
		t.Log("depths after the victim", b.queueDepths(peers))
	}
	return out
}

// setTarget sets a target of io.latency, or removes it, which also removes what it has done to the siblings.
func (b *slowBench) setTarget(name string, target time.Duration) {
	b.Helper()
	value := "max"
	if target > 0 {
		value = fmt.Sprint(target.Microseconds())
	}
	file := filepath.Join(cgroup.Root, name, "io.latency")
	lab.WriteFile(b.T, file, b.number+" target="+value)
	got, err := os.ReadFile(file)
	if want := b.number + " target=" + value + "\n"; err != nil || target > 0 && string(got) != want {
		b.Errorf("%s is %q (%v), want %q", file, got, err, want)
	}
}

// classRate returns how much all writers together write, in MiB per second.
func (b *slowBench) classRate(during time.Duration) float64 {
	b.Helper()
	before, began := b.counter(latencyPods, "wbytes"), time.Now()
	time.Sleep(during)
	return float64(b.counter(latencyPods, "wbytes")-before) / lab.MiB / time.Since(began).Seconds()
}

// queueDepths returns how many requests io.latency lets each cgroup have under way.
func (b *slowBench) queueDepths(names []string) string {
	b.Helper()
	var out []string
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(cgroup.Root, name, "io.stat"))
		if err != nil {
			b.Fatal(err)
		}
		depth := "?"
		for line := range strings.Lines(string(data)) {
			_, rest, found := strings.Cut(line, "depth=")
			if strings.HasPrefix(line, b.number+" ") && found {
				depth = strings.Fields(rest)[0]
			}
		}
		out = append(out, filepath.Base(name)+"="+depth)
	}
	return strings.Join(out, " ")
}
