package report

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/inspect"
)

// TestWriteCosts verifies that there is a row for each disk, and one warning for all disks that have it.
func TestWriteCosts(t *testing.T) {
	var out bytes.Buffer
	if writeCosts(&out, nil, "policy.yaml", "promised"); out.Len() > 0 {
		t.Errorf("without disks: %q", out.String())
	}
	writeCosts(&out, []inspect.Cost{
		{
			Disk: "sda", State: inspect.CostOnDemand, Model: inspect.CostValues{Origin: "calibration"}, QOS: inspect.CostValues{Origin: "policy"},
		},
		{Disk: "sdb", State: inspect.CostOn, Model: inspect.CostValues{Origin: "kernel"}, Warning: inspect.GuessedModel},
		{Disk: "sdc", State: inspect.CostNo, Reason: "weights: off"},
		{Disk: "sdd", State: inspect.CostOn, Model: inspect.CostValues{Origin: "kernel"}, Warning: inspect.GuessedModel},
		{Disk: "sde", State: inspect.CostOn, Warning: "short period"},
	}, "policy\x1b.yaml", "10% is promised")
	want := `
Weights need io.cost. Policy: "policy\x1b.yaml"
DISK  IO.COST           MODEL FROM   QOS FROM
sda   on demand         calibration  policy
sdb   on                kernel       -
sdc   no: weights: off  -            -
sdd   on                kernel       -
sde   on                -            -
note: 10% is promised
warning: sdb, sdd: ` + inspect.GuessedModel + `
warning: sde: short period
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
