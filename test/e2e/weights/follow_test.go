package weights

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
)

// TestModelFollows measures how much of a disk with two limits containers use by a model that follows the mix, and by one that
// stays, with what calibrate measures. It verifies that a victim that begins has as much by both.
//
//e2e:proof
func TestModelFollows(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	saved, got := b.calibratedWithLimits()
	shared := diskmodel.Limits{Ops: noise.SharedOperations, Bytes: noise.SharedBytes}
	agree(t, "operations", got.Ops, shared.Ops)
	agree(t, "bytes", got.Bytes, shared.Bytes)
	pinned, moved := b.follows(saved, "off", shared), b.follows(saved, "auto", shared)
	t.Logf("the model stays: %v; it follows: %v", pinned, moved)
	if pinned["32k"] > 65 || moved["32k"] < 90 {
		t.Errorf("one container alone has %.1f and %.1f %% of the disk, want about 57 and at least 90", pinned["32k"], moved["32k"])
	}
	if moved["both"] < 1.2*pinned["both"] {
		t.Errorf("4 KiB beside 1 MiB use %.0f and %.0f %% of both limits, want a fifth more", pinned["both"], moved["both"])
	}
	if moved["victim"] < .9*pinned["victim"] {
		t.Errorf("the victim reads %.0f/s and %.0f/s, want at least nine tenths", pinned["victim"], moved["victim"])
	}
}

// calibratedWithLimits calibrates the disk until that shows two limits, and returns where the calibration is saved.
func (b *slowBench) calibratedWithLimits() (saved string, limits diskmodel.Limits) {
	b.Helper()
	saved = b.TempDir()
	for range 3 { // a busy machine delays loads: then the points do not fit to two limits
		got := calibrate(b.T, b.name, "--force", "--write-dir", b.dir, "--save", "--calibration-dir", saved)
		if got.limits != nil {
			b.fio("--rw=randread", "--direct=1", "--runtime=1") // makes the file
			return saved, *got.limits
		}
	}
	b.Fatal("three calibrations do not show the limits of the disk")
	return "", limits
}

// follows measures what containers do by a policy with a value of follow. The first four figures are percentages of the limits of
// the disk: reads of 4 KiB, of 32 KiB and of 1 MiB, alone ("4k", "32k" and "1M"), and the sum of both limits with reads of 4 KiB
// beside those of 1 MiB with the same weight ("both"). "victim" has the reads of 4 KiB in a second that begin beside both, with ten
// times their weight.
func (b *slowBench) follows(saved, follow string, limits diskmodel.Limits) map[string]float64 {
	b.Helper()
	defer b.startFor(b.T, "--policy", lab.PolicyFile(b.T, fmt.Sprintf("bounds: {weight: {max: 10000}}\ndisks: [{follow: %q}]\n", follow)), "--calibration-dir", saved)()
	b.pods++
	small := b.holder(fmt.Sprint("small", b.pods), lab.Annotations{lab.Weight + "containers": "100"})
	large := b.holder(fmt.Sprint("large", b.pods), lab.Annotations{lab.Weight + "containers": "100"})
	victim := b.holder(fmt.Sprint("victim", b.pods), lab.Annotations{lab.Weight + "containers": "1000"})
	for _, k := range []held{small, large, victim} {
		defer b.end(k.pod)
	}
	b.awaitCost(true)
	safe := b.costLine("io.cost.model")
	run := func(k held, block, depth string) (stop func()) {
		_, stop = b.startFio(k.Cgroup, "--rw=randread", "--direct=1", "--ioengine=libaio", "--bs="+block, "--iodepth="+depth)
		lab.Eventually(b.T, "it reads", func() error { return didIO(b, k) })
		return stop
	}
	f := make(map[string]float64)
	for _, block := range []string{"4k", "32k", "1M"} {
		stop := run(large, block, "16")
		b.settle(safe, follow == "auto")
		ops, bytes := b.use(limits)
		f[block] = max(ops, bytes)
		stop()
	}
	stopSmall, stopLarge := run(small, "4k", "16"), run(large, "1M", "4")
	defer stopLarge()
	defer stopSmall()
	b.settle(safe, follow == "auto")
	ops, bytes := b.use(limits)
	f["both"] = ops + bytes
	stopVictim := run(victim, "4k", "4")
	defer stopVictim()
	before := b.operations([]string{victim.Cgroup})[0]
	began := time.Now()
	time.Sleep(10 * time.Second)
	f["victim"] = float64(b.operations([]string{victim.Cgroup})[0]-before) / time.Since(began).Seconds()
	b.Logf("follow %s: %v (%.0f and %.0f), io.cost.model %s", follow, f, ops, bytes, b.costLine("io.cost.model"))
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

// settle waits until the model is moved for this mix, or need not be.
func (b *slowBench) settle(safe string, moves bool) {
	b.Helper()
	const settled = 5 * time.Second
	if !moves {
		time.Sleep(settled)
		return
	}
	time.Sleep(2 * time.Second) // what began made the plugin go back
	lab.Within(b.T, 3*lab.Deadline, "the model is moved", func() error {
		if now := b.costLine("io.cost.model"); now != safe {
			return nil
		}
		out, err := lab.Command(b.T, "status")
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, b.name+" ") {
				if strings.Contains(line, "the disk does at least") || strings.Contains(line, "no model gives more") {
					return nil
				}
				err = cmp.Or(err, errors.New(line))
			}
		}
		return cmp.Or(err, errors.New("status has no line of the disk"))
	})
	time.Sleep(settled)
}

// use returns which percentages of both limits the disk does.
func (b *slowBench) use(limits diskmodel.Limits) (ops, bytes float64) {
	b.Helper()
	before, began := b.diskWork(), time.Now()
	time.Sleep(10 * time.Second)
	did, took := b.diskWork().since(before), time.Since(began).Seconds()/100
	return (did.reads + did.writes) / limits.Ops / took, did.bytes / limits.Bytes / took
}
