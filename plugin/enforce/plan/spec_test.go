package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestSpec verifies which settings go into an OCI spec, and that they are found there again.
func TestSpec(t *testing.T) {
	onVdb := setting(blkio.Riops, 10)
	onVdb[0].Dev = vdb.Dev
	all := setting(blkio.Wbps, 5).Join(onVdb).Join(setting(blkio.Weight, 50))
	for _, tt := range []struct {
		name        string
		splitsLines bool
		want        map[string]string
	}{
		{"one line a file", false, map[string]string{"io.max": "254:0 wbps=5", "io.weight": "50"}},
		{"several lines", true, map[string]string{"io.max": "254:0 wbps=5\n254:16 riops=10", "io.weight": "50"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := InSpec(all, tt.splitsLines)
			got := Unified(in)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(in, SpecValues(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := InSpec(policy.Settings{{Value: blkio.Value{Address: all[0].Address, Amount: blkio.Max}}}, true); len(got) > 0 {
		t.Errorf("what each cgroup has: %v", got)
	}
	if got := SpecValues(map[string]string{"io.max": "nonsense", "io.weight": "heavy"}); len(got) > 0 {
		t.Errorf("what cannot be parsed: %v", got)
	}
}
