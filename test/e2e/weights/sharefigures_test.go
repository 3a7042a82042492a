package weights

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
	"github.com/nri-blkio/nri-blkio/test/generated"
)

// shareCase is the kind of I/O of two containers with weights 200 and 300, each to a file of its own.
type shareCase struct {
	name string
	args []string
	// owner has written the file of the one with 200 before; nil for none.
	owner   *held
	seconds int // for how long it is measured
}

// shareSeconds is the number of seconds in which the figures of TestShareFigures are measured.
const shareSeconds = 60

// shareSize is the size of the file of each container, as fio takes it.
const shareSize = "--size=128M"

// TestShareFigures measures how weights 200 and 300 divide a disk, in 60 windows of a second.
//
//e2e:proof
func TestShareFigures(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	b.debugCost()
	lab.StartPlugin(t, "--policy", lab.PolicyFile(t, noise.Policy))
	// A limit on writes, which does not hold it back, has repair watch its files.
	light := lab.Annotations{lab.Weight + "containers": "200", lab.Limits + "containers": "/data wbps=50Mi"}
	pair := []held{b.holder("light", light), b.holder("heavy", lab.Annotations{lab.Weight + "containers": "300"})}
	owner := b.holder("owner", lab.Annotations{lab.Weight + "containers": "1000"})
	b.awaitCost(true)
	for i, k := range pair { // the files are there, and charged to their writers, before anything is measured
		b.own(t, k, b.shareFile(i))
	}
	buffered := []string{"--rw=write", "--bs=1M", "--fdatasync=1", "--numjobs=4"}
	for _, c := range []shareCase{
		{"direct reads", []string{"--rw=randread", "--direct=1", "--ioengine=libaio", "--iodepth=16"}, nil, shareSeconds},
		{"direct writes", []string{"--rw=randwrite", "--direct=1", "--ioengine=libaio", "--iodepth=16"}, nil, shareSeconds},
		{"buffered writes of 1 MiB, with fdatasync", buffered, nil, shareSeconds},
		{"the same, of a file that repair has moved from a container with 1000", buffered, &owner, shareSeconds},
	} {
		b.shares(t, pair, c, figureRounds, 10)
	}
}

// shares measures and publishes a case in some rounds. The median of the shares has to be 60 % within some points.
func (b *slowBench) shares(t *testing.T, pair []held, c shareCase, rounds int, within float64) {
	t.Helper()
	var row generated.Row
	for range rounds {
		share, isolation := b.share(t, pair, c)
		row.Add(map[string]float64{"share": 100 * share, "isolation": 100 * isolation})
	}
	publish(t, &row, c.name)
	if got, _ := row.Figure("share"); math.Abs(got.Median-60) > within {
		t.Errorf("%s: weight 300 beside 200 gets %.1f %%, want 60 %% within %.0f points", c.name, got.Median, within)
	}
}

// share returns the part of the disk that the second of two containers gets, and the first
// percentile of what it gets in a second of what it is due, at most 1.
func (b *slowBench) share(t *testing.T, pair []held, c shareCase) (share, isolation float64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	defer func() {
		cancel()
		_ = group.Wait() // killed
	}()
	start := func(i int) {
		args := append(slices.Clone(c.args), "--runtime=600", "--filename="+b.shareFile(i), shareSize)
		group.Go(func() error {
			_, err := b.disk().Victim(ctx, pair[i].Cgroup, args...)
			return err
		})
	}
	if c.owner != nil {
		b.own(t, *c.owner, b.shareFile(0))
	}
	start(0)
	if c.owner != nil {
		b.awaitCharged(pair[0], *c.owner)
	}
	before := []float64{b.bytes(pair[0]), b.bytes(pair[1])}
	start(1)
	// fio takes seconds to start on an emulated node, the longer the more the other one does meanwhile.
	lab.Eventually(t, "both containers do I/O", func() error {
		for i, k := range pair {
			if did := b.bytes(k) - before[i]; did < lab.MiB {
				return fmt.Errorf("container %d did %.0f bytes of I/O, want 1 MiB", i, did)
			}
		}
		return nil
	})
	time.Sleep(5 * time.Second)
	group.Go(func() error { // for the log
		out, err := lab.Command(t, "why", "--for", fmt.Sprint(c.seconds/2, "s"), "default/"+pair[1].pod.Name)
		t.Log(out, err)
		return err
	})
	light, heavy, windows := b.windows(pair, c.seconds)
	if ctx.Err() != nil {
		t.Fatal(context.Cause(ctx))
	}
	return heavy / (light + heavy), windows[0]
}

// second has the bytes of two containers in one second.
type second struct {
	number       int // from 0 on
	light, heavy float64
	// wroteLight and wroteHeavy are the bytes that their processes wrote, to the page cache or to the disk.
	wroteLight, wroteHeavy float64
	// waited and inDebt are for how many milliseconds writes or reads of the second container waited for
	// io.cost, and it was in debt there; 0 unless debugCost has been called.
	waited, inDebt float64
}

// part returns the part that the second one got of the 60 % that it is due, at most 1.
func (s second) part() float64 { return min(1, s.heavy/(s.light+s.heavy)/0.6) }

// worst is the number of seconds that windows logs.
const worst = 3

// windows measures some seconds. It returns the bytes of two containers, and the parts that the second
// got of the 60 % that it is due in each second, at most 1, the least first. It logs the worst seconds:
// if the second container has not waited for io.cost in one, it had nothing to write.
func (b *slowBench) windows(pair []held, seconds int) (light, heavy float64, parts []float64) {
	b.Helper()
	first := b.countShares(pair)
	before := first
	var all []second
	for n := range seconds {
		time.Sleep(time.Second)
		now := b.countShares(pair)
		s := second{
			n, now.light - before.light, now.heavy - before.heavy, now.wroteLight - before.wroteLight, now.wroteHeavy - before.wroteHeavy,
			now.waited - before.waited, now.inDebt - before.inDebt,
		}
		if s.light == 0 && s.heavy == 0 {
			b.Fatal("neither of the containers did any I/O in a second")
		}
		all, before = append(all, s), now
	}
	slices.SortFunc(all, func(x, y second) int { return cmp.Compare(x.part(), y.part()) })
	for i, s := range all {
		parts = append(parts, s.part())
		if i < worst {
			b.Logf("second %d: %.2f and %.2f MiB, processes wrote %.2f and %.2f MiB, the second container waited for io.cost for %.0f ms and was in debt for %.0f ms",
				s.number, s.light/lab.MiB, s.heavy/lab.MiB, s.wroteLight/lab.MiB, s.wroteHeavy/lab.MiB, s.waited, s.inDebt)
		}
	}
	return before.light - first.light, before.heavy - first.heavy, parts
}

// countShares returns what two containers have done so far, as a second that has not ended.
func (b *slowBench) countShares(pair []held) second {
	b.Helper()
	heavy := cgroup.Dir(pair[1].Cgroup)
	const perMilli = 1000 // microseconds
	return second{
		light: b.bytes(pair[0]), heavy: b.bytes(pair[1]), wroteLight: b.written(pair[0]), wroteHeavy: b.written(pair[1]),
		waited: float64(b.counter(heavy, "cost.wait")) / perMilli, inDebt: float64(b.counter(heavy, "cost.indebt")) / perMilli,
	}
}

// debugCost has io.stat show for how long a cgroup has waited for io.cost, and was in debt there,
// until the test ends.
func (b *slowBench) debugCost() {
	b.Helper()
	const parameter = "/sys/module/blk_cgroup/parameters/blkcg_debug_stats"
	set := func(value string) {
		if err := os.WriteFile(parameter, []byte(value), 0); err != nil {
			b.Log(err) // only the log of the worst seconds needs it
		}
	}
	set("Y")
	b.Cleanup(func() { set("N") })
}

// bytes returns what is charged to a container on the disk.
func (b *slowBench) bytes(k held) float64 {
	b.Helper()
	dir := cgroup.Dir(k.Cgroup)
	return float64(b.counter(dir, "rbytes") + b.counter(dir, "wbytes"))
}

// written returns the bytes that the processes of a container have written.
func (b *slowBench) written(k held) (sum float64) {
	b.Helper()
	pids, err := cgroup.Dir(k.Cgroup).PIDs()
	if err != nil {
		b.Fatal(err)
	}
	for _, pid := range pids {
		var read, wrote float64
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid)) // none: it has ended
		if _, err := fmt.Sscanf(string(data), "rchar: %f\nwchar: %f", &read, &wrote); err != nil && len(data) > 0 {
			b.Fatalf("%v in %q", err, data)
		}
		sum += wrote
	}
	return sum
}

func (b *slowBench) shareFile(i int) string { return filepath.Join(b.dir, fmt.Sprint("share", i)) }

// own has a container write a file, so that the kernel charges it for later writeback of the file.
func (b *slowBench) own(t *testing.T, k held, file string) {
	t.Helper()
	lab.Administer(t, "rm", "-f", file)
	before := b.bytes(k)
	if _, err := b.disk().Victim(t.Context(), k.Cgroup, "--rw=write", "--bs=1M", "--fsync_on_close=1", "--filename="+file, shareSize); err != nil {
		t.Fatal(err)
	}
	if charged := b.bytes(k) - before; charged < 64*lab.MiB {
		t.Fatalf("%.0f bytes of the file are charged to its owner, want at least 64 MiB", charged)
	}
}

// awaitCharged waits until what is written is charged to the writer, and not to a former owner.
func (b *slowBench) awaitCharged(writer, owner held) {
	b.Helper()
	lab.Eventually(b.T, "the file is moved to its writer", func() error {
		w, o := b.bytes(writer), b.bytes(owner)
		time.Sleep(time.Second)
		if w, o = b.bytes(writer)-w, b.bytes(owner)-o; w < lab.MiB || o > w/10 {
			return fmt.Errorf("in one second %.0f bytes are charged to the writer and %.0f to the former owner, want at least 1 MiB and at most a tenth of it", w, o)
		}
		return nil
	})
}
