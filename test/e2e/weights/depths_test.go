package weights

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
	"github.com/nri-blkio/nri-blkio/test/generated"
)

// depthRounds is how often each figure of TestDepths is measured.
const depthRounds = 3

// depthCase is a neighbour beside a victim that reads at several depths.
type depthCase struct {
	name          string
	policy        string // "" without the plugin
	limit, weight string // of the neighbour
	hasNeighbour  bool
	elsewhere     bool // the neighbour uses another disk
}

// The cases that the test compares.
const (
	depthNone     = 0
	depthNothing  = 1
	depthWeighted = 2
)

func depthCases() []depthCase {
	return []depthCase{
		{name: "none"},
		{name: "no settings", hasNeighbour: true},
		{name: "weights 1000 : 10, period of 44 ms", policy: noise.PolicyWith(noise.Headroom, 44*time.Millisecond), weight: "10", hasNeighbour: true},
		{name: "weights 1000 : 10, period of 88 ms", policy: noise.PolicyWith(noise.Headroom, 88*time.Millisecond), weight: "10", hasNeighbour: true},
		{name: "neighbour on another disk, 60 MiB/s", policy: anyWeight, limit: "/data rbps=60Mi", hasNeighbour: true, elsewhere: true},
	}
}

// TestDepths measures a victim that reads 4 KiB at depths of 1, 4 and 16, beside a neighbour that costs the processors little:
// one process that reads 1 MiB at depth 16.
//
//e2e:proof
func TestDepths(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	other := b.also(t, "vdb")
	b.fio("--rw=randread", "--direct=1", "--runtime=1") // makes the victim's file
	for _, on := range []*slowBench{b, other} {         // the neighbour's file is there as well before anything is measured
		on.fio("--rw=read", "--bs=1M", "--direct=1", "--runtime=1", "--filename="+on.shareFile(0), shareSize)
	}
	cases, depths := depthCases(), []int{1, 4, 16}
	rows := make([][]generated.Row, len(depths))
	for d := range rows {
		rows[d] = make([]generated.Row, len(cases))
	}
	for range depthRounds {
		alone := make([]noise.Result, len(depths))
		for i := range cases {
			on := b
			if cases[i].elsewhere {
				on = other
			}
			b.depths(t, &cases[i], on, depths, func(d int, got noise.Result, figures map[string]float64) {
				if i == depthNone {
					alone[d] = got
				}
				figures["reads"], figures["p99"] = got.Rate, got.P99
				figures["kept"], figures["times"] = 100*got.Rate/alone[d].Rate, got.P99/alone[d].P99
				rows[d][i].Add(figures)
			})
		}
	}
	for d, depth := range depths {
		for i := range cases {
			publish(t, &rows[d][i], fmt.Sprintf("depth %d, %s", depth, cases[i].name))
		}
		with, _ := rows[d][depthWeighted].Figure("reads")
		without, _ := rows[d][depthNothing].Figure("reads")
		if with.Median < 2*without.Median {
			t.Errorf("at depth %d the victim reads %.0f/s with weights, and %.0f/s without", depth, with.Median, without.Median)
		}
	}
}

// depths measures one case, with the neighbour on a disk. each gets what the victim does at a depth, and the other figures.
func (b *slowBench) depths(t *testing.T, c *depthCase, on *slowBench, depths []int, each func(d int, got noise.Result, figures map[string]float64)) {
	t.Helper()
	if c.policy != "" {
		defer b.startFor(t, "--policy", lab.PolicyFile(t, c.policy))()
	}
	var heavy, light lab.Annotations
	if c.weight != "" {
		heavy, light = lab.Annotations{lab.Weight + "containers": "1000"}, lab.Annotations{lab.Weight + "containers": c.weight}
	}
	if c.limit != "" {
		light = lab.Annotations{lab.Limits + "containers": c.limit}
	}
	b.pods++
	victim, neighbour := b.holder(fmt.Sprint("victim", b.pods), heavy), on.holder(fmt.Sprint("noisy", b.pods), light)
	defer b.end(victim.pod)
	defer b.end(neighbour.pod)
	if c.weight != "" {
		b.awaitCost(true)
	}
	if c.hasNeighbour {
		_, stop := on.startFio(neighbour.Cgroup, "--rw=randread", "--direct=1", "--bs=1M", "--ioengine=libaio", "--iodepth=16", "--filename="+on.shareFile(0), shareSize)
		defer stop()
		lab.Eventually(t, "the neighbour reads", func() error {
			if n := on.operations([]string{neighbour.Cgroup})[0]; n < 100 {
				return fmt.Errorf("it did %d operations, want 100", n)
			}
			return nil
		})
		time.Sleep(noise.Settle)
	}
	for d, depth := range depths {
		var got noise.Result
		before, began := pressure(t, cpuPressure), time.Now()
		rates, err := on.disk().While(neighbour.Cgroup, func() (err error) {
			got, err = b.disk().Victim(t.Context(), victim.Cgroup, "--rw=randread", "--direct=1", "--ioengine=libaio", fmt.Sprint("--iodepth=", depth))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		figures := map[string]float64{"cpu": 100 * (pressure(t, cpuPressure) - before).Seconds() / time.Since(began).Seconds()}
		if c.hasNeighbour {
			figures["neighbour"] = rates.Read
		}
		each(d, got, figures)
	}
}

// cpuPressure is the file about waits for a processor on the node.
const cpuPressure = "/proc/pressure/cpu"

// pressure returns for how long some thread has waited, by a file of the kernel.
func pressure(t *testing.T, file string) time.Duration {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pressure, err := blkio.ParsePressure(string(data))
	if err != nil {
		t.Fatal(err)
	}
	return pressure.Some
}
