package weights

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
)

// followFigures are what containers do on the shared disk: parts of what it can do, and operations per second.
type followFigures struct {
	alone      float64 // reads of 32 KiB, nothing else
	ops, bytes float64 // reads of 4 KiB beside reads of 1 MiB, with the same weight
	victim     float64 // reads of 4 KiB that begin beside both, with ten times their weight
}

// TestModelFollows measures how much of a disk with two limits containers use by a model that follows the mix, and by one that
// stays, with what calibrate measures. It verifies that a victim that begins has as much by both.
//
//e2e:proof
func TestModelFollows(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	saved := t.TempDir()
	for try := 1; ; try++ { // a busy machine delays loads: then the points do not fit to two limits
		got := calibrate(t, sharedDisk, "--force", "--write-dir", b.dir, "--save", "--calibration-dir", saved)
		if got.limits != nil {
			agree(t, "operations", got.limits.Ops, noise.SharedOperations)
			agree(t, "bytes", got.limits.Bytes, noise.SharedBytes)
			break
		}
		if try == 3 {
			t.Fatalf("%d calibrations do not show the limits of the disk", try)
		}
	}
	b.fio("--rw=randread", "--direct=1", "--runtime=1") // makes the file
	pinned := b.follows(t, saved, "off")
	moved := b.follows(t, saved, "auto")
	for name, f := range map[string]followFigures{"the model stays": pinned, "the model follows": moved} {
		t.Logf("%s: alone with 32 KiB: %.3f; 4 KiB beside 1 MiB: %.2f of the operations + %.2f of the bytes = %.2f; victim: %.0f reads/s", name, f.alone, f.ops, f.bytes, f.ops+f.bytes, f.victim)
	}
	if pinned.alone > .65 || moved.alone < .9 {
		t.Errorf("one container alone has %.3f and %.3f of the disk, want about 0.57 and at least 0.9", pinned.alone, moved.alone)
	}
	if moved.ops+moved.bytes < 1.2*(pinned.ops+pinned.bytes) {
		t.Errorf("4 KiB beside 1 MiB use %.2f and %.2f of both limits, want a fifth more", pinned.ops+pinned.bytes, moved.ops+moved.bytes)
	}
	if moved.victim < .9*pinned.victim {
		t.Errorf("the victim reads %.0f/s and %.0f/s, want at least nine tenths", pinned.victim, moved.victim)
	}
}

// follows measures by a policy with a value of follow.
func (b *slowBench) follows(t *testing.T, saved, follow string) (f followFigures) {
	t.Helper()
	defer b.startFor(t, "--policy", lab.PolicyFile(t, fmt.Sprintf("bounds: {weight: {max: 10000}}\ndisks: [{follow: %q}]\n", follow)), "--calibration-dir", saved)()
	b.pods++
	small := b.holder(fmt.Sprint("small", b.pods), lab.Annotations{lab.Weight + "containers": "100"})
	large := b.holder(fmt.Sprint("large", b.pods), lab.Annotations{lab.Weight + "containers": "100"})
	victim := b.holder(fmt.Sprint("victim", b.pods), lab.Annotations{lab.Weight + "containers": "1000"})
	for _, k := range []held{small, large, victim} {
		defer b.end(k.pod)
	}
	b.awaitCost(true)
	safe := b.costLine("io.cost.model")
	deep := []string{"--rw=randread", "--direct=1", "--ioengine=libaio"}
	run := func(k held, block, depth string) (stop func()) {
		_, stop = b.startFio(k.Cgroup, append(deep, "--bs="+block, "--iodepth="+depth)...)
		lab.Eventually(t, "it reads", func() error { return didIO(b, k) })
		return stop
	}
	stop := run(large, "32k", "16")
	b.settle(t, safe, follow == "auto")
	f.alone, _ = b.use()
	stop()
	stopSmall, stopLarge := run(small, "4k", "16"), run(large, "1M", "4")
	defer stopLarge()
	defer stopSmall()
	b.settle(t, safe, follow == "auto")
	f.ops, f.bytes = b.use()
	stopVictim := run(victim, "4k", "4")
	defer stopVictim()
	before := b.operations([]string{victim.Cgroup})[0]
	began := time.Now()
	time.Sleep(10 * time.Second)
	f.victim = float64(b.operations([]string{victim.Cgroup})[0]-before) / time.Since(began).Seconds()
	t.Logf("follow %s: %+v, io.cost.model %s", follow, f, b.costLine("io.cost.model"))
	return f
}

// didIO returns an error unless a container does I/O now.
func didIO(b *slowBench, k held) error {
	before := b.operations([]string{k.Cgroup})[0]
	time.Sleep(time.Second)
	if b.operations([]string{k.Cgroup})[0] < before+10 {
		return errors.New("it does less than 10 operations in a second")
	}
	return nil
}

// settle waits until the model is moved for this mix, or as long as that takes.
func (b *slowBench) settle(t *testing.T, safe string, moves bool) {
	t.Helper()
	const settled = 15 * time.Second
	if !moves {
		time.Sleep(settled)
		return
	}
	time.Sleep(2 * time.Second) // what began made the plugin go back
	lab.Within(t, 3*lab.Deadline, "the model is moved", func() error {
		if now := b.costLine("io.cost.model"); now != safe {
			return nil
		}
		out, err := lab.Command(t, "status")
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, sharedDisk+" ") {
				err = cmp.Or(err, errors.New(line))
			}
		}
		return cmp.Or(err, errors.New("status has no line of the disk"))
	})
	time.Sleep(settled / 3)
}

// use returns which parts of both limits the disk does.
func (b *slowBench) use() (ops, bytes float64) {
	b.Helper()
	before, began := b.diskWork(), time.Now()
	time.Sleep(10 * time.Second)
	did, took := b.diskWork().since(before), time.Since(began).Seconds()
	return (did.reads + did.writes) / noise.SharedOperations / took, did.bytes / noise.SharedBytes / took
}
