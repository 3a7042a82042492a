package writeback

import (
	"slices"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// These tests run the writeback part alone, which moves files to their writers, with cgroups that
// the tests create. The part knows limits only by the records on cgroups. TestScenarios runs it
// with containers.

// TestRepair verifies that a file of another cgroup moves to a limited writer while that writes to it, and that
// its writes are charged to the writer from then on. Only a proof has each way to write on each filesystem.
func TestRepair(t *testing.T) {
	lab.StartRepair(t)
	reader, err := writeback.NewOwnerReader()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() }) // the parallel cases run after this function
	times := 1
	if *lab.Proof {
		times = 25
	}
	all := make([][]time.Duration, len(filesystemsWithOwners))
	t.Cleanup(func() { logSwitches(t, slices.Concat(all...)) })
	for i, fs := range filesystemsWithOwners {
		t.Run(fs, func(t *testing.T) {
			besideOthers(t)
			ways := lab.WaysToWrite
			if fs != "ext4" && !*lab.Proof {
				ways = ways[:1]
			}
			for _, way := range ways {
				t.Run(way.Name, func(t *testing.T) {
					for range times {
						all[i] = append(all[i], lab.Switches(t, reader, fs, way.Command))
					}
				})
			}
		})
	}
}

// besideOthers lets the case of one filesystem run beside those of the others, each of which is
// on its own disk. A proof runs them one after another: it takes longer for each, and the
// documentation has the times that it measures.
func besideOthers(t *testing.T) {
	t.Helper()
	if !*lab.Proof {
		t.Parallel()
	}
}

func logSwitches(t *testing.T, all []time.Duration) {
	t.Helper()
	if len(all) == 0 {
		return // E2E_RUN chose none, or the first one failed
	}
	slices.Sort(all)
	t.Logf("%d switches: p50 %v, p99 %v, at most %v", len(all), all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
}
