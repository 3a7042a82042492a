package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
)

// TestWeightsLeftOut verifies that status reports that it does not show all weights, also where it shows none.
func TestWeightsLeftOut(t *testing.T) {
	for _, shares := range [][]health.Share{nil, {{Namespace: "prod", Pod: "db-0", Disk: "vda", Weight: 50}}} {
		var out bytes.Buffer
		writeWeights(&out, &health.Weights{Shares: shares, SharesLeftOut: 7}, false)
		if got := out.String(); !strings.Contains(got, "note: 7 weights on this node are left out") {
			t.Errorf("with %d rows: %q", len(shares), got)
		}
	}
}

// TestWeightWithoutDisk verifies that status has a row for a weight that applies to no disk.
func TestWeightWithoutDisk(t *testing.T) {
	var out bytes.Buffer
	writeWeights(&out, &health.Weights{Shares: []health.Share{{Namespace: "prod", Pod: "db-0", Container: "db", Weight: 50, Reason: "it uses no local disk"}}}, false)
	const want = "prod/db-0  db         none  50      none       no effect: it uses no local disk\n"
	if got := out.String(); !strings.Contains(got, want) {
		t.Errorf("got %q, want a row %q", got, want)
	}
}

// TestCostText verifies that status shows why io.cost is enabled on a disk, or is not.
func TestCostText(t *testing.T) {
	for _, tt := range []struct {
		disk health.CostDisk
		want string
	}{
		{health.CostDisk{Enabled: true, Model: "policy"}, "ok"},
		{health.CostDisk{Enabled: true, Follow: &health.Follow{State: "moved", Reason: "pod a/b waits"}}, "ok; model moved: pod a/b waits"},
		{health.CostDisk{Enabled: true, Model: "policy", Kept: "the runtime has not listed what runs"}, "kept: the runtime has not listed what runs"},
		{health.CostDisk{By: "bfq", Enabled: true}, "ok; by the scheduler bfq, which divides reads better than writes"},
		{health.CostDisk{Error: "no room"}, "failed: no room"},
		{health.CostDisk{Enabled: true, Model: "kernel"}, "ok; " + inspect.GuessedModel},
	} {
		if got := costText(tt.disk); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.disk, got, tt.want)
		}
	}
}

// TestWeightsSkipped verifies that status names the cgroups that could not be read.
func TestWeightsSkipped(t *testing.T) {
	var out bytes.Buffer
	writeWeights(&out, &health.Weights{Skipped: []string{"skip cgroup pods/a: read io.stat: permission denied", "and 3 more cgroups"}}, false)
	const want = "warning: skip cgroup pods/a: read io.stat: permission denied\nwarning: and 3 more cgroups\n"
	if got := out.String(); got != want {
		t.Errorf("%q", got)
	}
}
