package check

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestLimitedDisks verifies that a warning about shared disks concerns disks with a limit, not with a weight.
// It does not concern disks that are unknown before the volume is mounted.
func TestLimitedDisks(t *testing.T) {
	r := Result{Writes: []Write{
		{Disk: "sda", Dev: "8:0", File: blkio.IOMax},
		{Disk: "sda", Dev: "8:0", File: blkio.IOMax},
		{Disk: "disk of the claim", File: blkio.IOMax},
		{File: blkio.IOWeight},
	}}
	if d := cmp.Diff(map[string]bool{"sda": true}, r.limitedDisks()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
