package weights

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
	"github.com/nri-blkio/nri-blkio/test/generated"
)

// TestCostOverhead measures what io.cost takes from a container that has the disk for itself.
//
//e2e:proof
func TestCostOverhead(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	deep := []string{"--direct=1", "--ioengine=libaio", "--iodepth=16"}
	cases := []shareCase{
		{name: "reads of 4 KiB", args: append([]string{"--rw=randread", "--bs=4k"}, deep...)},
		{name: "writes of 4 KiB", args: append([]string{"--rw=randwrite", "--bs=4k"}, deep...)},
		{name: "reads of 32 KiB", args: append([]string{"--rw=randread", "--bs=32k"}, deep...)},
		{name: "reads of 1 MiB", args: append([]string{"--rw=randread", "--bs=1M"}, deep...)},
		{name: "writes of 1 MiB", args: append([]string{"--rw=randwrite", "--bs=1M"}, deep...)},
	}
	b.fio("--rw=randread", "--direct=1", "--runtime=1") // makes the file
	rows := make([]generated.Row, len(cases))
	for range figureRounds {
		without := make([]float64, len(cases))
		for i, c := range cases {
			without[i], _ = b.fio(c.args...)
		}
		stop := b.startFor(t, "--policy", lab.PolicyFile(t, noise.Policy))
		b.pods++
		k := b.holder("weighted", lab.Annotations{lab.Weight + "containers": "200"})
		b.awaitCost(true)
		for i, c := range cases {
			got, err := b.disk().Victim(t.Context(), k.Cgroup, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			rows[i].Add(map[string]float64{"without": without[i], "with": got.Rate, "part": 100 * got.Rate / without[i]})
		}
		b.end(k.pod)
		stop()
	}
	for i := range cases {
		publish(t, &rows[i], cases[i].name)
	}
}
