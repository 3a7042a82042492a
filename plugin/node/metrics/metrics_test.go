package metrics

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// collector is a node with one census.
type collector struct {
	*Counters
	census Census
	totals Totals
}

func (c *collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.Counters.Collect(out, &c.census, &c.totals)
}

func newCollector() *collector {
	var zero atomic.Int64
	return &collector{Counters: New(), totals: Totals{&zero, &zero, &zero, &zero, &zero}}
}

// TestCollect verifies that containers are counted by their states and warnings, and that a kind of warning without a series of its own
// is counted once for a container.
func TestCollect(t *testing.T) {
	c := newCollector()
	c.census.Add(Limited, []blkio.WarningKind{policy.NoMemoryLimit, "new", "newer"}, true)
	c.census.Add(Limited, nil, false)
	c.census.Add(Failed, []blkio.WarningKind{policy.NoMemoryLimit}, false)
	c.Refused[annotation.Internal].Add(2)
	c.Applied.Add(3)
	want := `
# HELP nri_blkio_containers Running containers of these pods, by the decision on their limits; observed: decided and not written; failed: a request is not granted.
# TYPE nri_blkio_containers gauge
nri_blkio_containers{state="failed"} 1
nri_blkio_containers{state="limited"} 2
nri_blkio_containers{state="observed"} 0
nri_blkio_containers{state="unlimited"} 0
# HELP nri_blkio_live_changes_total Edits of the annotations and labels of running pods, by whether they count.
# TYPE nri_blkio_live_changes_total counter
nri_blkio_live_changes_total{result="applied"} 3
nri_blkio_live_changes_total{result="rejected"} 0
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "nri_blkio_containers", "nri_blkio_live_changes_total"); err != nil {
		t.Error(err)
	}
	if got := []int{c.census.warnings[0], c.census.warnings[otherWarning]}; got[0] != 2 || got[1] != 1 {
		t.Errorf("%d warnings about memory limits, %d others, want 2 and 1", got[0], got[1])
	}
}

// TestLint verifies that names and helps are as Prometheus wants them.
func TestLint(t *testing.T) {
	problems, err := testutil.CollectAndLint(newCollector())
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
