package weights

import (
	"math"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
	"github.com/nri-blkio/nri-blkio/test/generated"
)

// mixedCase is the I/O of two containers with weights 200 and 300, as arguments of fio.
type mixedCase struct {
	name         string
	light, heavy []string
}

// mixedCases are requests of different sizes.
func mixedCases() (out []mixedCase) {
	for _, name := range []string{"read", "write"} {
		of := func(size string) []string { return []string{"--rw=rand" + name, size} }
		small, large, mix := of("--bs=4k"), of("--bs=1M"), of("--bssplit=4k/60:64k/30:1M/10")
		out = append(
			out,
			mixedCase{name + "s: 4 KiB (300) beside 1 MiB (200)", large, small},
			mixedCase{name + "s: 1 MiB (300) beside 4 KiB (200)", small, large},
			mixedCase{name + "s: both a mix of 4 KiB, 64 KiB and 1 MiB", mix, mix},
		)
	}
	return out
}

// TestMixedShares measures how weights 200 and 300 divide a disk between requests of different sizes. They divide its time, by
// the model of io.cost. So the parts of the operations and of the bytes depend on the sizes.
//
//e2e:proof
func TestMixedShares(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	lab.StartPlugin(t, "--policy", lab.PolicyFile(t, noise.Policy))
	pair := b.pair()
	b.awaitCost(true)
	b.mixed(pair, mixedCases())
}

// mixed measures and publishes cases.
func (b *slowBench) mixed(pair [2]held, cases []mixedCase) {
	b.Helper()
	for _, c := range cases {
		var row generated.Row
		for range figureRounds {
			row.Add(b.divide(pair, c))
		}
		publish(b.T, &row, c.name)
		if got, _ := row.Figure("part"); math.Abs(got.Median-60) > 2 {
			b.Errorf("%s: weight 300 beside 200 gets %.1f %%, want 60 %% within 2 points", c.name, got.Median)
		}
	}
}

// pair runs two pods with weights 200 and 300, with a file for each.
func (b *slowBench) pair() (pair [2]held) {
	b.Helper()
	for i, weight := range []string{"200", "300"} {
		pair[i] = b.holder("weight"+weight, lab.Annotations{lab.Weight + "containers": weight})
		b.fio("--rw=write", "--bs=1M", "--direct=1", "--runtime=1", "--filename="+b.shareFile(i))
	}
	return pair
}

// divide measures which percentages of the disk's time by io.cost, of its operations and of its bytes the second one of two
// containers has, for some seconds in which both do I/O at depth 16.
func (b *slowBench) divide(pair [2]held, c mixedCase) map[string]float64 {
	b.Helper()
	const settle, window = 3 * time.Second, 10 * time.Second
	for i, args := range [][]string{c.light, c.heavy} {
		_, stop := b.startFio(pair[i].Cgroup, append([]string{"--direct=1", "--ioengine=libaio", "--iodepth=16", "--filename=" + b.shareFile(i)}, args...)...)
		defer stop()
		lab.Eventually(b.T, "it does I/O", func() error { return didIO(b, pair[i]) })
	}
	time.Sleep(settle)
	names := map[string][]string{"part": {"cost.usage"}, "operations": {"rios", "wios"}, "bytes": {"rbytes", "wbytes"}}
	count := func() map[string][2]float64 {
		out := make(map[string][2]float64)
		for figure, counters := range names {
			var sum [2]float64
			for i, k := range pair {
				for _, name := range counters {
					sum[i] += float64(b.counter(cgroup.Dir(k.Cgroup), name))
				}
			}
			out[figure] = sum
		}
		return out
	}
	before := count()
	time.Sleep(window)
	out := make(map[string]float64)
	for figure, after := range count() {
		light, heavy := after[0]-before[figure][0], after[1]-before[figure][1]
		out[figure] = 100 * heavy / (light + heavy)
	}
	return out
}
