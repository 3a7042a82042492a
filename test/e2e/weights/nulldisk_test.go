package weights

import (
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/generated"
)

// nullDisk are settings of null_blk with two limits. Its queue has eight requests, each of which takes 5.3 ms: 1,500 operations in
// a second. mbps lets 1.02 MiB pass in each of the 50 ticks of a second. A request that does not fit into the rest of a tick waits
// for the next one, with all behind it. So requests have at most 128 KiB, an eighth of a tick.
var nullDisk = map[string]string{
	"submit_queues": "1", "hw_queue_depth": "8", "irqmode": "2", "completion_nsec": "5333333",
	"mbps": "51", "max_sectors": "256", "blocksize": "4096", "size": "1024", "no_sched": "1",
}

// TestNullDisk measures weights on a disk that the kernel itself makes, so that the figures do not depend on a hypervisor.
//
//e2e:proof
func TestNullDisk(t *testing.T) {
	b := newSlowBench(t, lab.NullDisk(t, nullDisk))
	saved, limits := b.calibratedWithLimits()
	stop := b.startFor(t, "--policy", lab.PolicyFile(t, anyWeight+"disks: [{follow: \"off\"}]\n"), "--calibration-dir", saved)
	pair := b.pair()
	b.awaitCost(true)
	small, large := []string{"--rw=randread", "--bs=4k"}, []string{"--rw=randread", "--bs=1M"}
	b.mixed(pair, []mixedCase{
		{"4 KiB (300) beside 4 KiB (200): the share of 300", small, small},
		{"4 KiB (300) beside 1 MiB (200): the share of 300", large, small},
	})
	stop()
	cases := []struct{ figure, name string }{
		{"4k", "one container alone, 4 KiB: of the disk"},
		{"32k", "one container alone, 32 KiB: of the disk"},
		{"1M", "one container alone, 1 MiB: of the disk"},
		{"both", "4 KiB beside 1 MiB with equal weights: of the operations + of the bytes"},
		{"without", "the same without io.cost"},
	}
	rows := make([]generated.Row, len(cases))
	for range figureRounds {
		got := b.follows(saved, "auto", limits)
		got["without"] = b.withoutCost(limits)
		for i, c := range cases {
			rows[i].Add(map[string]float64{"part": got[c.figure]})
		}
	}
	for i, c := range cases {
		publish(t, &rows[i], c.name)
	}
}

// withoutCost returns the sum of the percentages of both limits that reads of 4 KiB beside those of 1 MiB use.
func (b *slowBench) withoutCost(limits diskmodel.Limits) float64 {
	b.Helper()
	for _, args := range [][]string{{"--bs=4k", "--iodepth=16"}, {"--bs=1M", "--iodepth=4"}} {
		_, stop := b.startFio(b.victim.Name, append([]string{"--rw=randread", "--direct=1", "--ioengine=libaio"}, args...)...)
		defer stop()
	}
	time.Sleep(3 * time.Second)
	ops, bytes := b.use(limits)
	return ops + bytes
}
