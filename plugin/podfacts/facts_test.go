package podfacts

import (
	"slices"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestVolumes verifies that claims among the volumes of a pod have limits: those of the annotation, then those of
// the class, where a key with the plugin's prefix counts before a plain one.
func TestVolumes(t *testing.T) {
	const own = annotation.OwnPrefix
	mounts := []policy.Place{{Container: "db", Path: "/data"}}
	for name, tt := range map[string]struct {
		facts Facts
		want  []string
		warn  string
	}{
		"all": {
			facts: Facts{Volumes: []policy.Volume{{
				Name: "v", Claim: "data", Places: mounts, Limits: new("wbps=1Mi"),
				Class: &policy.ClaimClass{Name: "fast", Rates: map[string]string{"wbps": "2Mi", "rbps": " 1048576 ", own + "riops": "30", "riops": "40"}},
			}}},
			want: []string{"rbps=1048576 from claim data, class fast", "wbps=1048576 from claim data", "riops=30 from claim data, class fast"},
		},
		"omitted limits": {
			facts: Facts{Volumes: []policy.Volume{{Name: "v", Claim: "data", Places: mounts, Omitted: map[string]string{"limits": "more than 4096 bytes"}}}},
			warn:  `"claim data": the limits are unknown: more than 4096 bytes`,
		},
		"absent":  {facts: Facts{Volumes: []policy.Volume{{Name: "v", Claim: "data", Places: mounts, Class: &policy.ClaimClass{Name: "gone"}}}}},
		"omitted": {facts: Facts{Omitted: map[string]string{PartVolumes: "129 of them (maximum 128)"}}},
	} {
		volumes := tt.facts.volumes()
		if volumes.Known() != (name != "omitted") {
			t.Errorf("%s: known: %t", name, volumes.Known())
		}
		disk := blkio.Backing{FSType: "ext4", Disks: []blkio.Disk{{Name: "sda", Dev: blkio.Dev{Major: 8}}}}
		c := policy.Container{Name: "db", MemoryLimited: true, Mounts: []policy.Mount{{Destination: "/data", Backing: &disk}}}
		d, err := policy.Default().ForPod(&policy.PodFacts{Volumes: volumes}, nil).Container(c)
		var got []string
		for _, s := range d.Settings {
			got = append(got, s.Key.String()+"="+s.Amount.String()+" from "+s.Source.String())
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if tt.warn != "" && !slices.Equal(d.Warnings, []string{tt.warn}) {
			t.Errorf("%s: %q", name, d.Warnings)
		}
	}
}
