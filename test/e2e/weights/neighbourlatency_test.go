package weights

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// neighbourRow begins a line of TestNeighbour that is a bar of docs/images/neighbour.svg:
// the neighbour, and the median, least and greatest milliseconds.
const neighbourRow = "neighbour-row "

// TestNeighbour measures what a pod that writes without end does to the latency of another
// pod's reads from the same disk, without and with a limit. It takes minutes, and the limits
// themselves are tested elsewhere, so it runs with a proof only.
//
//e2e:proof
func TestNeighbour(t *testing.T) {
	b := newSlowBench(t, slowDisk)
	lab.StartPlugin(t)
	lab.LittleDirty(t) // the memory of this small node is not to take all that is written
	writes := []string{"write", "--path", "/data/files", "--span", "1Gi"}
	rows := []neighbour{
		{name: "alone"},
		{name: "beside a writer without a limit", args: writes, unlimited: true},
		{name: "beside a writer with wbps=2Mi", args: writes},
	}
	p99 := make([][]float64, len(rows))
	for range 3 {
		for i, n := range rows {
			p99[i] = append(p99[i], b.reads(n))
		}
	}
	for i, n := range rows {
		slices.Sort(p99[i])
		fmt.Printf("%s%s|%.3g|%.3g|%.3g\n", neighbourRow, n.name, p99[i][1], p99[i][0], p99[i][2])
	}
	if p99[2][1] >= p99[1][1] {
		t.Errorf("the median p99 of the reads is %.3g ms beside a limited neighbour, want less than the %.3g ms beside an unlimited one", p99[2][1], p99[1][1])
	}
}

// reads returns the 99th percentile of the victim's reads beside a neighbour, in milliseconds.
func (b *slowBench) reads(n neighbour) float64 {
	b.Helper()
	if n.args != nil {
		k, end := b.run(n)
		defer end()
		// What it writes first goes into memory only.
		lab.Eventually(b.T, "the neighbour's writes reach the disk", func() error {
			if got := b.counter(cgroup.Dir(k.Cgroup), "wbytes"); got < 4*lab.MiB {
				return fmt.Errorf("the neighbour wrote %d bytes, want 4 MiB", got)
			}
			return nil
		})
		time.Sleep(lab.Settle)
	}
	_, p99 := b.fio("--rw=randread", "--direct=1")
	return p99
}
